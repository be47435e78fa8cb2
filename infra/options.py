# SPDX-License-Identifier: Apache-2.0
"""Options of workloads, faults, topologies, backends and clients, declared where they are used.

An owner has a frozen dataclass. Each field is an option; its help text and its allowed values stand beside it:

    @dataclass(frozen=True)
    class DelayOptions:
        delay: Seconds = option(Seconds(0.05), "How long each packet is held back.", low=0.001, high=10)
        ports: tuple[int, ...] = option((), "Only packets to these ports; none named: all.")
        mode: Literal["fixed", "jitter"] = option("fixed", "Whether each packet waits as long as the others.")

All else follows from it: the keys in TOML (`delay = "50ms"`), the options of the command line (`--delay 50ms`), those
of `--nemesis "packet-delay delay=50ms"`, and the lines of `harness list packet-delay`.

Types: `bool`, `int`, `float`, `str`, `Seconds` (a duration: `0.05` or `"50ms"`), `Size` (bytes: `1048576` or `"1MiB"`),
`Literal` of texts, a `tuple[T, ...]` of one of these, and `T | None`.
"""

from __future__ import annotations

import math
import re
import types
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache
from typing import Any, Final, Literal, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

Seconds = NewType("Seconds", float)
Size = NewType("Size", int)

LONGEST_S: Final = 30 * 86400.0
"""The longest duration."""

_DURATION: Final = r"^\s*(\d{1,15}(?:\.\d{1,15})?)\s*(us|ms|s|m|min|h)?\s*$"
_UNIT_S: Final = {"us": 1e-6, "ms": 0.001, "s": 1.0, None: 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_SIZE: Final = r"^\s*(\d{1,15}(?:\.\d{1,15})?)\s*(B|KiB|MiB|GiB)?\s*$"
_UNIT_BYTES: Final = {"B": 1, None: 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

Owner = TypeVar("Owner")


class OptionError(ValueError):
    """An option is wrong. One line: the fault, its place, and what would be right."""


class NotAvailable(OptionError):
    """A valid option needs something that this machine, or this cluster, does not have. One line."""


@dataclass(frozen=True)
class NoOptions:
    """The options of an owner without options."""


def option(
    default: Any = MISSING,
    help: str = "",
    *,
    low: float | None = None,
    high: float | None = None,
    metavar: str | None = None,
    flag: str | None = None,
    permission: bool = False,
) -> Any:
    """A field of a dataclass of options.

    low, high   the bounds of a number, each of them allowed.
    flag        its name on the command line, if that is another one: `--node`.
    permission  allows an action on machines: only the user can give it, on the command line; no plan can.
    """
    about = {"help": help, "low": low, "high": high, "metavar": metavar, "flag": flag, "permission": permission}
    return field(default=default, metadata=about)


@dataclass(frozen=True)
class OptionSpec:
    """One option of an owner.

    kind      `bool`, `int`, `float`, `str`, `Seconds`, `Size` or a tuple of the allowed texts.
    many      a list of such values. optional: `None` is allowed as well, and means that nothing was chosen.
    """

    name: str
    kind: Any
    many: bool
    optional: bool
    default: Any
    help: str
    low: float | None = None
    high: float | None = None
    metavar: str | None = None
    given_flag: str | None = None
    permission: bool = False

    @property
    def flag(self) -> str:
        """`--read-mode`."""
        return self.given_flag or f"--{self.name.replace('_', '-')}"

    @property
    def placeholder(self) -> str:
        """The placeholder of the value in a help text: `TIME`, `log|unsafe`."""
        if self.metavar is not None:
            return self.metavar
        if isinstance(self.kind, tuple):
            return "|".join(self.kind)
        return {bool: "true|false", int: "N", float: "X", str: "TEXT", Seconds: "TIME", Size: "SIZE"}[self.kind]

    @property
    def shown_default(self) -> str:
        """The default as a user would write it; empty if it has none."""
        if self.default is None or self.default is MISSING or self.default == ():
            return ""
        value = toml_value(self, self.default)
        if isinstance(value, bool):
            return str(value).lower()
        return ",".join(map(str, value)) if isinstance(value, list) else str(value)

    def describe(self) -> str:
        """Help and default in one line."""
        return self.help + (f"  [default: {self.shown_default}]" if self.shown_default else "")


def specs(owner: type) -> Mapping[str, OptionSpec]:
    """Name -> option, in the order of their declaration. Raises TypeError for a type that cannot be an option's."""
    return _specs(owner)


@cache
def _specs(owner: Hashable) -> Mapping[str, OptionSpec]:
    assert isinstance(owner, type)
    hints = get_type_hints(owner)
    return {f.name: _spec(owner, f, hints[f.name]) for f in fields(owner)}


def _spec(owner: type, of: Field[Any], hint: Any) -> OptionSpec:
    optional = many = False
    if get_origin(hint) in (Union, types.UnionType):
        inner = [a for a in get_args(hint) if a is not type(None)]
        if len(inner) != 1 or len(get_args(hint)) != 2:
            raise TypeError(f"{owner.__name__}.{of.name}: {hint} cannot be the type of an option")
        optional, hint = True, inner[0]
    if get_origin(hint) is tuple:
        arguments = get_args(hint)
        if len(arguments) != 2 or arguments[1] is not Ellipsis:
            raise TypeError(f"{owner.__name__}.{of.name}: a list of values is tuple[TYPE, ...]")
        many, hint = True, arguments[0]
    kind = get_args(hint) if get_origin(hint) is Literal else hint
    if not isinstance(kind, tuple) and kind not in (bool, int, float, str, Seconds, Size):
        raise TypeError(f"{owner.__name__}.{of.name}: {hint} cannot be the type of an option")
    about = of.metadata
    return OptionSpec(
        of.name,
        kind,
        many,
        optional,
        of.default,
        str(about.get("help", "")),
        about.get("low"),
        about.get("high"),
        about.get("metavar"),
        about.get("flag"),
        bool(about.get("permission")),
    )


def parse(owner: type[Owner], given: Mapping[str, Any], where: str, what: str = "") -> Owner:
    """An owner's options from values as TOML has them, or as texts of the command line.

    where  the beginning of an error (a file, a table). what: the owner of the options (`the workload 'log'`). Raises
    OptionError for an unknown option, a missing one, and a wrong value.
    """
    known = specs(owner)
    for name in given:
        if name not in known:
            there = f"; it has {', '.join(known)}" if known else "; it has none"
            raise OptionError(f"{where}: {what or 'this'} has no option {cut(name)}{suggest(name, known) or there}")
    missing = [s.name for s in known.values() if s.default is MISSING and s.name not in given]
    if missing:
        raise OptionError(f"{where}: {what or 'this'} needs the option {missing[0]}")
    values = {name: value_of(known[name], value, f"{where}: {name}") for name, value in given.items()}
    try:
        return owner(**values)
    except OptionError:
        raise
    except ValueError as problem:  # of a `__post_init__`, which compares several options
        raise OptionError(f"{where}: {problem}") from None


def dump(given: Any) -> dict[str, Any]:
    """Options as TOML has them, with all defaults, without those that are None."""
    found = {}
    for spec in specs(type(given)).values():
        value = getattr(given, spec.name)
        if value is not None:
            found[spec.name] = toml_value(spec, value)
    return found


def toml_value(spec: OptionSpec, value: Any) -> Any:
    """A value of an option as it is in TOML."""
    if spec.many:
        return [_toml_scalar(spec, one) for one in value]
    return _toml_scalar(spec, value)


def _toml_scalar(spec: OptionSpec, value: Any) -> Any:
    return duration_text(value) if spec.kind is Seconds else value


def value_of(spec: OptionSpec, value: Any, where: str) -> Any:
    """A value of TOML, or a text of the command line, as the option's type. Raises OptionError."""
    if not spec.many:
        return _scalar(spec, value, where)
    if isinstance(value, str):
        value = [word.strip() for word in value.split(",") if word.strip()]
    if not isinstance(value, list | tuple):
        raise OptionError(f"{where} is {cut(value)}; a list is right")
    return tuple(_scalar(spec, one, where) for one in value)


def _scalar(spec: OptionSpec, value: Any, where: str) -> Any:
    kind = spec.kind
    if isinstance(kind, tuple):
        if value not in kind:
            raise OptionError(f"{where} is {cut(value)}; {' or '.join(kind)} is right")
        return value
    if kind is bool:
        return _bool(value, where)
    if kind is str:
        if not isinstance(value, str) or "\0" in value:
            raise OptionError(f"{where} is {cut(value)}; text without NUL characters is right")
        return value
    if kind is Seconds:
        number: float = seconds(value, where)
    elif kind is Size:
        number = size(value, where)
    else:
        number = _number(kind, value, where)
    low, high = spec.low, spec.high
    if (low is not None and number < low) or (high is not None and number > high):
        raise OptionError(f"{where} is {cut(value)}; {_bounds(spec)} is right")
    return number


def _bounds(spec: OptionSpec) -> str:
    def text(number: float) -> str:
        return duration_text(number) if spec.kind is Seconds else f"{number:g}"

    if spec.low is not None and spec.high is not None:
        return f"{text(spec.low)} to {text(spec.high)}"
    return f"at least {text(spec.low)}" if spec.low is not None else f"at most {text(spec.high or 0)}"


def _bool(value: Any, where: str) -> bool:
    found = {"true": True, "false": False}.get(value) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise OptionError(f"{where} is {cut(value)}; true or false is right")
    return found


def _number(kind: Any, value: Any, where: str) -> float:
    if isinstance(value, str) and len(value) <= 400:
        with suppress(ValueError):
            value = kind(value)
    if isinstance(value, bool) or not isinstance(value, int if kind is int else (int, float)):
        raise OptionError(f"{where} is {cut(value)}; a {'whole ' * (kind is int)}number is right")
    if kind is int:
        return int(value)
    number = as_float(value)
    if not math.isfinite(number):
        raise OptionError(f"{where} is {cut(value)}; a finite number is right")
    return number


def seconds(given: object, where: str) -> Seconds:
    """`90`, `"90s"`, `"1.5m"`, `"250ms"` -> seconds, at most `LONGEST_S`. OptionError names `where` otherwise."""
    if isinstance(given, int | float) and not isinstance(given, bool):
        value = as_float(given)
    else:
        found = re.match(_DURATION, given) if isinstance(given, str) else None
        if not found:
            raise OptionError(f"{where} is {cut(given)}; a duration is right, such as 60, '90s' or '2m'")
        value = float(found[1]) * _UNIT_S[found[2]]
    if not 0 <= value <= LONGEST_S:
        raise OptionError(f"{where} is {cut(given)}; a time from 0 to {LONGEST_S / 86400:g} days is right")
    return Seconds(value)


def size(given: object, where: str) -> Size:
    """`1048576`, `"1MiB"`, `"1.5GiB"` -> bytes. OptionError names `where` otherwise."""
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return Size(given)
    found = re.match(_SIZE, given) if isinstance(given, str) else None
    if not found:
        raise OptionError(f"{where} is {cut(given)}; a size is right, such as 4096, '64KiB' or '1.5GiB'")
    return Size(round(float(found[1]) * _UNIT_BYTES[found[2]]))


def duration_text(seconds: float) -> str:
    """Seconds as TOML has them: `90s`, `0.05s`."""
    # Imported here, and `difflib` below: every command loads this module, and hardly any needs them.
    from decimal import Decimal

    return f"{Decimal(repr(float(seconds))).normalize():f}s"


def as_float(value: float) -> float:
    """A number as a float; one that no float can hold becomes infinity."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def suggest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` if something known is near, else the empty string."""
    import difflib

    # (Matching takes time with the square of the length.)
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6) if len(word) <= 100 else []
    return f"; did you mean {near[0]!r}?" if near else ""


def cut(value: object) -> str:
    """A value for an error line: its beginning, if it is long."""
    if isinstance(value, int) and abs(value) >= 10**60:
        return "a number of more than 60 digits"
    try:
        text = repr(value)
    except RecursionError:
        return "a value that is nested too deeply"
    return text if len(text) <= 120 else f"{text[:120]}..."


def assignments(words: Sequence[str], where: str) -> dict[str, str]:
    """`["delay=50ms", "mode=jitter"]` -> a table of texts. A name that is there again adds to a list: `to=1 to=2` ->
    `1,2`. Raises OptionError for a word that is not NAME=VALUE.
    """
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise OptionError(f"{where}: {cut(word)} is not NAME=VALUE")
        key = name.replace("-", "_")
        found[key] = f"{found[key]},{value}" if key in found else value
    return found
