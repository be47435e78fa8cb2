# SPDX-License-Identifier: Apache-2.0
"""Java class files by their behaviour: two compilations of one source are equal, with any compiler and JDK.

The digest of a class covers its name, its parents, its fields, and the instructions of its methods. It leaves out the
parts that a compiler is free to choose: the order of the constant pool, line numbers, names of local variables, frames
for the verifier, and the class file's version. Format: The Java Virtual Machine Specification, chapter 4.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

_UNTOLD: Final = 0x30
"""Flags of classes: `super`, which has no meaning, and `final`, which some compilers give anonymous classes."""
_WIDE: Final = 0xC4
_TABLESWITCH, _LOOKUPSWITCH = 0xAA, 0xAB
_LDC, _LDC_W, _INVOKEINTERFACE, _INVOKEDYNAMIC = 0x12, 0x13, 0xB9, 0xBA
_JUMPS: Final = frozenset({*range(0x99, 0xA9), 0xC6, 0xC7})
_WIDE_JUMPS: Final = {0xC8: 0xA7, 0xC9: 0xA8}
_CHECKCAST: Final = 0xC0
"""An instruction that is left out: compilers differ in casts without effect."""
_NULL_CHECKS: Final = (
    "182 7 java/lang/Object getClass ",
    "184 7 java/util/Objects requireNonNull (Ljava/lang/Object;)L",
)
"""Two ways in which compilers check an instance for null."""
_CONSTANTS: Final = frozenset({_LDC_W, 0x14, *range(0xB2, 0xBB), 0xBB, 0xBD, 0xC0, 0xC1, 0xC5})

_OPERANDS: Final[Mapping[int, int]] = {
    **dict.fromkeys((0x10, _LDC, *range(0x15, 0x1A), *range(0x36, 0x3B), 0xA9, 0xBC), 1),
    **dict.fromkeys((0x11, _LDC_W, 0x14, 0x84, *_JUMPS, *range(0xB2, 0xB9), 0xBB, 0xBD, 0xC0, 0xC1), 2),
    0xC5: 3,
    **dict.fromkeys((_INVOKEINTERFACE, _INVOKEDYNAMIC, *_WIDE_JUMPS), 4),
}
"""Instruction -> bytes of its operands; others have none."""

_LAMBDA: Final = re.compile(r"lambda\$\w+\$\d+")
_BUFFER: Final = re.compile(r"^7 java/nio/\w*Buffer( \w+ \(.*\))Ljava/nio/\w*Buffer;$")
"""A method of a buffer that returns it: newer JDKs name its own class, older ones that of its parent."""


def digest(data: bytes) -> str:
    """The digest that identifies a class. Raises ValueError for data that is no class file."""
    try:
        return hashlib.sha256("\n".join(_Class(data).lines()).encode()).hexdigest()
    except (struct.error, IndexError, KeyError, UnicodeError) as problem:
        raise ValueError(f"not a class file: {problem}") from None


class _Class:
    """A class file, read from front to back."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0
        if self._take(">I") != 0xCAFEBABE:
            raise ValueError("not a class file")
        self._take(">HH")
        self._pool = self._read_pool()
        self._bootstraps: list[str] = []

    def _take(self, form: str) -> Any:
        found = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return found[0] if len(found) == 1 else found

    def _read_pool(self) -> list[tuple[int, Any]]:
        count = self._take(">H")
        pool: list[tuple[int, Any]] = [(0, None)]
        while len(pool) < count:
            tag = self._take(">B")
            if tag == 1:
                size = self._take(">H")
                pool.append((tag, self._data[self._at : self._at + size]))
                self._at += size
            else:
                form = {3: ">i", 4: ">I", 5: ">q", 6: ">Q", 15: ">BH"}.get(tag)
                form = form or (">H" if tag in (7, 8, 16, 19, 20) else ">HH")
                pool.append((tag, self._take(form)))
                if tag in (5, 6):
                    pool.append((0, None))
        return pool

    def _constant(self, index: int) -> str:
        """A constant as text, with all its references."""
        tag, value = self._pool[index]
        if tag == 1:
            return str(value.decode("utf-8", "surrogatepass") if b"\xc0\x80" not in value else value)
        if tag in (3, 4, 5, 6):
            return f"{tag} {value}"
        if tag in (7, 8, 16, 19, 20):
            return f"{tag} {self._constant(value)}"
        if tag == 15:
            return f"handle {value[0]} {self._constant(value[1])}"
        if tag in (10, 11) and (text := " ".join(map(self._constant, value))).startswith("7 java/nio/"):
            return _BUFFER.sub(r"a buffer\1", text)
        if tag in (17, 18):
            return f"{self._bootstraps[value[0]]} {self._constant(value[1])}"
        return f"{self._constant(value[0])} {self._constant(value[1])}"

    def lines(self) -> Iterator[str]:
        flags, name, parent, count = self._take(">HHHH")
        heads = [f"{flags & ~_UNTOLD} {self._constant(name)} extends {self._constant(parent) if parent else ''}"]
        heads += [self._constant(self._take(">H")) for _ in range(count)]
        fields, methods = self._members(), self._members()
        self._read_bootstraps()
        yield from heads
        for flags, member, kind, attributes in sorted(fields, key=lambda one: one[1:3]):
            value = attributes.get("ConstantValue")
            constant = "" if value is None else self._constant(*struct.unpack(">H", value))
            yield f"field {flags} {member} {kind} {constant}"
        bodies = {}
        for flags, member, kind, attributes in methods:
            code = attributes.get("Code")
            bodies[f"method {flags} {member} {kind}"] = [] if code is None else list(self._body(code))
        # Newer compilers give the constants of an enumeration a method of their own.
        values = next((bodies.pop(head) for head in list(bodies) if " $values ()" in head), [])
        for head, body in bodies.items():
            at = next((n for n, line in enumerate(body) if values and " $values ()" in line), None)
            bodies[head] = body if at is None else [*body[:at], *values[:-1], *body[at + 1 :]]
        # Compilers number the methods of lambdas as they like.
        yield from sorted(_LAMBDA.sub("lambda", "\n".join([head, *body])) for head, body in bodies.items())

    def _members(self) -> list[tuple[int, str, str, dict[str, bytes]]]:
        found = []
        for _ in range(self._take(">H")):
            flags, name, kind = self._take(">HHH")
            found.append((flags, self._constant(name), self._constant(kind), self._attributes()))
        return found

    def _attributes(self) -> dict[str, bytes]:
        found = {}
        for _ in range(self._take(">H")):
            name, size = self._take(">HI")
            found[self._constant(name)] = self._data[self._at : self._at + size]
            self._at += size
        return found

    def _read_bootstraps(self) -> None:
        data = self._attributes().get("BootstrapMethods")
        if data is None:
            return
        at = 2
        for _ in range(struct.unpack_from(">H", data)[0]):
            method, count = struct.unpack_from(">HH", data, at)
            given = struct.unpack_from(f">{count}H", data, at + 4)
            at += 4 + 2 * count
            self._bootstraps.append(" ".join(self._constant(index) for index in (method, *given)))

    def _body(self, data: bytes) -> Iterator[str]:
        size = struct.unpack_from(">I", data, 4)[0]
        code = data[8 : 8 + size]
        numbers, number = {}, 0
        for at in _starts(code):
            numbers[at] = number
            number += code[at] != _CHECKCAST
        numbers[size] = number
        for at in list(numbers)[:-1]:
            if code[at] != _CHECKCAST:
                line = self._instruction(code, at, numbers)
                yield "null check" if line.startswith(_NULL_CHECKS) else line
        count = struct.unpack_from(">H", data, 8 + size)[0]
        for row in range(count):
            start, end, handler, kind = struct.unpack_from(">HHHH", data, 10 + size + 8 * row)
            what = self._constant(kind) if kind else "any"
            yield f"catch {numbers[start]} {numbers[end]} {numbers[handler]} {what}"

    def _instruction(self, code: bytes, at: int, numbers: Mapping[int, int]) -> str:
        name = code[at]
        operands = code[at + 1 : at + 1 + _OPERANDS.get(name, 0)]
        if name == _LDC:
            return f"{_LDC_W} {self._constant(operands[0])}".rstrip()
        if name in _CONSTANTS:
            more = operands[2:].hex() if name != _INVOKEDYNAMIC else ""
            return f"{name} {self._constant(*struct.unpack_from('>H', operands))} {more}".rstrip()
        if name in _JUMPS:
            return f"{name} to {numbers[at + struct.unpack('>h', operands)[0]]}"
        if name in _WIDE_JUMPS:
            return f"{_WIDE_JUMPS[name]} to {numbers[at + struct.unpack('>i', operands)[0]]}"
        if name in (_TABLESWITCH, _LOOKUPSWITCH):
            begin, _ = _switch(code, at)
            default, first, second = struct.unpack_from(">iii", code, begin)
            to = [f"else {numbers[at + default]}"]
            if name == _TABLESWITCH:
                jumps = struct.unpack_from(f">{second - first + 1}i", code, begin + 12)
                to += [f"{first + n} {numbers[at + jump]}" for n, jump in enumerate(jumps)]
            else:
                pairs = struct.unpack_from(f">{2 * first}i", code, begin + 8)
                to += [f"{pairs[n]} {numbers[at + pairs[n + 1]]}" for n in range(0, 2 * first, 2)]
            return f"{name} {' '.join(to)}"
        if name == _WIDE:
            return f"{name} {code[at + 1 : at + (6 if code[at + 1] == 0x84 else 4)].hex()}"
        return f"{name} {operands.hex()}"


def _starts(code: bytes) -> Iterator[int]:
    """The offsets at which the instructions begin."""
    at = 0
    while at < len(code):
        yield at
        name = code[at]
        if name in (_TABLESWITCH, _LOOKUPSWITCH):
            at = _switch(code, at)[1]
        elif name == _WIDE:
            at += 6 if code[at + 1] == 0x84 else 4
        else:
            at += 1 + _OPERANDS.get(name, 0)


def _switch(code: bytes, at: int) -> tuple[int, int]:
    """The offsets of a switch's numbers and of the next instruction."""
    begin = at + 4 - at % 4
    _, first, second = struct.unpack_from(">iii", code, begin) if len(code) >= begin + 12 else (0, 0, 0)
    if code[at] == _TABLESWITCH:
        return begin, begin + 12 + 4 * (second - first + 1)
    return begin, begin + 8 + 8 * struct.unpack_from(">i", code, begin + 4)[0]
