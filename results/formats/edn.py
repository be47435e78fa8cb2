# SPDX-License-Identifier: Apache-2.0
"""EDN, as Jepsen and Knossos write it: a small reader for the whole notation, and a writer of histories.

A history is either one vector or list of op maps (Knossos' data), or one map after another (Jepsen's `history.edn`,
also tagged, `#jepsen.history.Op{...}`):

    {:index 0, :time 5, :process 0, :type :invoke, :f :cas, :value [1 2]}

EDN has more types than JSON: keywords, symbols and characters become strings, sets (sorted) and lists become lists, a
tag is dropped, a ratio is kept as text (https://github.com/edn-format/edn). Atoms are looked up, not parsed, from their
second occurrence on, and line numbers are only computed for an error message.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal

from results.durable import replacing
from results.errors import HistoryError, with_article
from results.formats.foreign import NEEDING, Assembler, BadEvent, ForeignHistory, ReadOptions
from results.formats.independent import keyed, keyed_for_certain, keyed_note
from results.formats.signs import is_plain_event, is_record
from results.op import INFO, INVOKE, NEMESIS, OP_TYPES, Op

_TOKEN: Final = re.compile(
    r"""(?:[\s,]++|;[^\n]*+)*+          # white space, commas, comments
    (   "(?:[^"\\]++|\\[\s\S])*+"       # a string
      | \\(?:[A-Za-z][a-z0-9A-F]*+|\S)  # a character
      | \#\{ | \#_ | [\[\](){}]         # brackets, discard
      | [^\s,;"\[\](){}\\]+             # a number, keyword, symbol, tag
      | ["\\]                           # a string that never ends
      | $)""",
    re.VERBOSE,
)
_INT: Final = re.compile(r"[+-]?\d+N?")
_HEX: Final = re.compile(r"0x[0-9a-fA-F]{1,16}")
_FLOAT: Final = re.compile(r"[+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?M?")
_RATIO: Final = re.compile(r"[+-]?\d+/\d+")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", '"': '"', "'": "'", "/": "/"}
_CHARACTERS: Final = {"newline": "\n", "space": " ", "tab": "\t", "return": "\r", "formfeed": "\f", "backspace": "\b"}
_CLOSES: Final = {"(": ")", "[": "]", "{": "}", "#{": "}"}
_KEYWORD: Final = re.compile(r"[A-Za-z*!_?][A-Za-z0-9*+!_?.-]*")
_OP_FIELDS: Final = frozenset({"index", "time", "process", "type", "f", "key", "value", "error", "extra"})
_MISSING: Final = object()
_TUPLE: Final = "#jepsen.independent/tuple"
_TAGGED: Final = "values are tuples of jepsen.independent: every value is taken for [key value]"
_DEEPEST: Final = 200
"""The deepest nesting of brackets; readers of values descend into them by recursion."""
_LONGEST: Final = 4_000
"""The largest number of digits of a whole number; Python reads some more, but their cost grows with the square."""


class EdnError(ValueError):
    """Text that is no EDN. `token`: the place of the offending token."""

    def __init__(self, what: str, token: int) -> None:
        super().__init__(what)
        self.what, self.token = what, token


def parse_edn(text: str) -> list[Any]:
    """All forms of a text, as JSON values. Raises EdnError.

    >>> parse_edn('{:f :cas, :value [1 nil]} ; a comment')
    [{'f': 'cas', 'value': [1, None]}]
    """
    return _Forms(text).top


def read_edn(
    path: Path,
    text: str,
    options: ReadOptions,
    *,
    format_: str = "edn",
    nil_reads: Literal["unset", "unrecorded"] = "unrecorded",
) -> ForeignHistory:
    """The history in a text. Raises HistoryError with the line. `nil_reads`: used if the options leave it open."""
    try:
        forms = _Forms(text)
    except EdnError as problem:
        raise HistoryError(path, _line(text, problem.token), problem.what) from None
    ops, depth = forms.top, 0
    if len(ops) == 1 and isinstance(ops[0], list):
        ops, depth = ops[0], 1
    if depth == 0 and len(ops) == 1 and isinstance(ops[0], dict) and isinstance(ops[0].get("history"), list):
        ops, depth = ops[0]["history"], 2
    if depth == 0 and len(ops) == 1 and isinstance(ops[0], dict) and "valid?" in ops[0] and "type" not in ops[0]:
        raise HistoryError(path, None, "what Jepsen's checkers found (:valid?), and no history; history.edn is one")
    if ops and all(isinstance(op, dict) and "process" not in op for op in ops):
        ops = [_without_namespaces(op) for op in ops]
    if ops and all(isinstance(op, dict) for op in ops) and _has_other_names(ops[0]):
        return _in_other_names(path, ops, options)
    assembler = Assembler(options, nil_reads)
    tagged = not options.independent and _TUPLE in text
    ops = [_from_vector(op) for op in ops]
    certain = (
        not (options.independent or tagged)
        and all(isinstance(op, dict) for op in ops)
        and keyed_for_certain((op.get("process"), op.get("f"), op.get("value")) for op in ops)
    )

    def refused(place: int, problem: ValueError) -> HistoryError:
        shown = write_value(ops[place])[:200]
        line = _line(text, forms.starts[depth][place]) if depth < 2 else None
        return HistoryError(path, line, f"{problem} ({shown})")

    for place, op in enumerate(ops):
        try:
            _add(assembler, op, options.independent or tagged or certain)
        except ValueError as problem:
            raise refused(place, problem) from None
    try:
        return assembler.finish(format_, [_TAGGED] if tagged else keyed_note(certain))
    except BadEvent as problem:
        raise refused(problem.place, problem) from None


def _without_namespaces(op: dict[str, Any]) -> dict[str, Any]:
    """A map with the names behind the slash: `:jepsen.op/process` is `:process`."""
    found = {name.rpartition("/")[2] or name: value for name, value in op.items()}
    return found if len(found) == len(op) else op


def _has_other_names(first: dict[str, Any]) -> bool:
    return not {"process", "type", "f"} <= first.keys() and (is_record(first) or is_plain_event(first))


def _in_other_names(path: Path, ops: list[dict[str, Any]], options: ReadOptions) -> ForeignHistory:
    """The history of maps with the names of other programs, or of whole operations, which JSON may have, too."""
    # Imported here: few files need them.
    from results.formats.jsonl import read_jsonl
    from results.formats.records import read_records

    reader = read_records if is_record(ops[0]) else read_jsonl
    return replace(reader(path, io.BytesIO(json.dumps(ops).encode()), options), format="edn")


def _from_vector(op: Any) -> Any:
    """An event that is written as a vector, as a map; anything else unchanged. There are three such forms: names and
    values, pairs of them, and `[process type f value]`.
    """
    if not isinstance(op, list):
        return op
    if len(op) in (3, 4) and op[1] in OP_TYPES and isinstance(op[2], str) and isinstance(op[0], (int, str)):
        return {"process": op[0], "type": op[1], "f": op[2], "value": op[3] if len(op) == 4 else None}
    flat = [part for pair in op for part in pair] if all(isinstance(p, list) and len(p) == 2 for p in op) else op
    names = flat[::2]
    if len(flat) % 2 or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        return op
    return dict(zip(names, flat[1::2], strict=True)) if {"process", "type", "f"} <= set(names) else op


def _add(assembler: Assembler, op: Any, independent: bool) -> None:
    if not isinstance(op, dict):
        raise ValueError("an operation is a map")
    for name in ("process", "type", "f"):
        if name not in op:
            raise ValueError(f"an operation needs :{name}")
    extra = {name: value for name, value in op.items() if name not in _OP_FIELDS}
    more = op.get("extra")
    if isinstance(more, dict):
        extra |= more
    if not isinstance(op["f"], str):
        raise ValueError(f"f is {write_value(op['f'])[:80]}, not the name of an operation")
    if op["type"] == INVOKE and op["f"] in NEEDING and "value" not in op and op["process"] != "nemesis":
        raise ValueError(f"{with_article(op['f'])} needs its :value")
    key, value = op.get("key"), op.get("value")
    if independent and op["process"] != "nemesis":
        key, value = keyed(op["f"], value)
    assembler.add(
        op["process"],
        op["type"],
        op["f"],
        value,
        key=key,
        error=op.get("error"),
        time=op.get("time"),
        index=op.get("index"),
        extra=extra,
    )


class _Forms:
    """The parse of a text: `top`, its forms; `starts[d]`, the first token of each form at depth 0 and 1."""

    def __init__(self, text: str) -> None:
        self.top: list[Any] = []
        self.starts: tuple[list[int], list[int]] = ([], [])
        self._parse(_TOKEN.findall(text))

    def _parse(self, tokens: list[str]) -> None:
        known: dict[str, Any] = {}
        # The open forms: bracket (or tag, or discard), the list around it, its first token.
        stack: list[tuple[str, list[Any], int]] = []
        items, depth, prefixed = self.top, 0, False
        for at, token in enumerate(tokens):
            value = known.get(token, _MISSING)
            if value is _MISSING:
                if token in _CLOSES:
                    if len(stack) > _DEEPEST:
                        raise EdnError(f"a value that is nested more than {_DEEPEST} deep", at)
                    stack.append((token, items, at))
                    items, depth, prefixed = [], depth + 1, False
                    continue
                if token in (")", "]", "}"):
                    if not stack or _CLOSES.get(stack[-1][0]) != token:
                        raise EdnError(f"{token!r} closes nothing{_opened(stack)}", at)
                    bracket, around, start = stack.pop()
                    value, items, depth = _whole(bracket, items, at), around, depth - 1
                    prefixed = bool(stack) and stack[-1][0] not in _CLOSES
                elif token.startswith("#") and not token.startswith("##"):
                    stack.append((token, items, at))
                    prefixed = True
                    continue
                elif not token:
                    continue
                else:
                    value, start = known.setdefault(token, _atom(token, at)), at
            else:
                start = at
            if prefixed:
                kept = self._prefixes(stack)
                prefixed = False
                if not kept:
                    prefixed = bool(stack) and stack[-1][0] not in _CLOSES
                    continue
            if depth < 2:
                self.starts[depth].append(start)
            items.append(value)
        if stack:
            raise EdnError(f"{stack[-1][0]!r} is never closed", stack[-1][2])

    @staticmethod
    def _prefixes(stack: list[tuple[str, list[Any], int]]) -> bool:
        """Removes the tags of a form that has ended. Returns False if a discard removes the form itself."""
        while stack and stack[-1][0] not in _CLOSES:
            if stack.pop()[0] == "#_":
                return False
        return True


def _whole(bracket: str, items: list[Any], at: int) -> Any:
    """The value of a bracket that has just been closed."""
    if bracket == "#{":
        # Sorted: a program that writes a set twice may write it in two orders.
        return sorted(items, key=lambda item: (len(text := json.dumps(item)), text))
    if bracket != "{":
        return items
    if len(items) % 2:
        raise EdnError("a map with a key that has no value", at)
    names = [name if isinstance(name, str) else json.dumps(name) for name in items[::2]]
    found = dict(zip(names, items[1::2], strict=True))
    if len(found) < len(names):
        met: set[str] = set()
        twice = next(name for name in names if name in met or met.add(name))  # type: ignore[func-returns-value]
        raise EdnError(f"a map with the key {twice!r} twice", at)
    return found


def _atom(token: str, at: int) -> Any:
    first = token[0]
    if token in _CONSTANTS:
        return _CONSTANTS[token]
    if first == ":" and len(token) > 1:
        return token[1:]
    if first == '"':
        return _string(token, at)
    if first == "\\":
        return _character(token, at)
    if first.isdigit() or (first in "+-" and token[1:2].isdigit()):
        return _number(token, at)
    if first == ":":
        raise EdnError("a keyword without a name", at)
    return token


_CONSTANTS: Final = {"nil": None, "true": True, "false": False, "##NaN": "NaN", "##Inf": "Inf", "##-Inf": "-Inf"}


def _number(token: str, at: int) -> Any:
    if _INT.fullmatch(token):
        if len(token) > _LONGEST:
            raise EdnError(f"a number of {len(token):,} digits", at)
        return int(token.rstrip("N"))
    if _FLOAT.fullmatch(token):
        return float(token.rstrip("M"))
    if _RATIO.fullmatch(token):
        return token
    if _HEX.fullmatch(token):
        return int(token, 16)  # (Clojure prints the address of an object so.)
    raise EdnError(f"{token!r} is no number", at)


def _string(token: str, at: int) -> str:
    if token == '"':
        raise EdnError("a string that is never closed", at)
    text = token[1:-1]
    if "\\" not in text:
        return text

    def unescaped(found: re.Match[str]) -> str:
        escape = found[1]
        if len(escape) == 5:
            return chr(int(escape[1:], 16))
        if escape.isdecimal():
            return chr(int(escape, 8))
        if escape not in _ESCAPES:
            raise EdnError(f"a string with the escape '\\{escape}', which EDN does not have", at)
        return _ESCAPES[escape]

    # Two \u of a surrogate pair are one character, as in Java.
    return _ESCAPE.sub(unescaped, text).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _character(token: str, at: int) -> str:
    name = token[1:]
    if len(name) == 1:
        return name
    if name in _CHARACTERS:
        return _CHARACTERS[name]
    if re.fullmatch(r"u[0-9a-fA-F]{4}", name):
        return chr(int(name[1:], 16))
    raise EdnError(f"{token!r} is no character", at)


def _opened(stack: list[tuple[str, list[Any], int]]) -> str:
    return f"; {stack[-1][0]!r} is open" if stack else ""


def _line(text: str, token: int) -> int:
    """The line of the token with this number."""
    found = next(islice(_TOKEN.finditer(text), token, None))
    return text.count("\n", 0, found.start(1)) + 1


def write_edn(ops: Iterable[Op], path: Path, *, independent: bool = False) -> None:
    """Writes a history as Jepsen's `history.edn`: a map a line. Whole or not at all; StoreError if that fails.

    independent   Clients' values become `[key value]`, which `jepsen.independent` reads; else `:key` is a field.

    The nemesis' invocations become `info`, as in Jepsen. `ReadOptions(nil_reads="unset")` reads the same history back.
    """
    with replacing(path, "the history") as file:
        file.writelines(f"{_op(op, independent)}\n".encode() for op in ops)


def _op(op: Op, independent: bool) -> str:
    nemesis = op.process == NEMESIS
    type_ = INFO if nemesis and op.type == INVOKE else op.type
    inside = independent and not nemesis
    value = write_value([op.key, op.value] if inside else op.value)
    fields = [f":index {op.index}", f":time {op.time}", f":process {':nemesis' if nemesis else op.process}"]
    fields += [f":type :{type_}", f":f {_name(op.f)}"]
    if op.key is not None and not inside:
        fields.append(f":key {write_value(op.key)}")
    fields.append(f":value {value}")
    if op.error is not None:
        fields.append(f":error {write_value(op.error)}")
    fields += [f"{_name(name)} {write_value(more)}" for name, more in op.extra.items() if name not in _OP_FIELDS]
    hidden = {name: more for name, more in op.extra.items() if name in _OP_FIELDS}
    if hidden:
        fields.append(f":extra {write_value(hidden)}")
    return f"{{{', '.join(fields)}}}"


def write_value(value: Any) -> str:
    """A JSON value in EDN. Names in maps stay strings, so that nothing is lost on the way back.

    >>> write_value({"a": [1, None, "x"]})
    '{"a" [1 nil "x"]}'
    """
    if value is None:
        return "nil"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(name))} {write_value(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return f"[{' '.join(write_value(inner) for inner in value)}]"
    return json.dumps(value)


def _name(text: str) -> str:
    return f":{text}" if _KEYWORD.fullmatch(text) else json.dumps(text)
