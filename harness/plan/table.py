# SPDX-License-Identifier: Apache-2.0
"""A TOML table that is read with checks: keys that were read are known, and the rest belongs to other owners."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from infra.options import OptionError, as_float, cut, seconds, suggest

_DEEPEST: Final = 20
"""The deepest nesting of tables."""


class PlanError(OptionError):
    """A plan or an option is wrong. One line: what is wrong, where, and what would be right."""


class Table:
    """`prefix`: its place in the file `where`."""

    def __init__(self, data: object, where: str, prefix: str) -> None:
        if not isinstance(data, Mapping):
            raise PlanError(f"{where}: {prefix.rstrip(': ') or 'the plan'} must be a table, not {cut(data)}")
        self.data, self.where, self.prefix = data, where, prefix
        self._taken: dict[str, None] = {}

    def has(self, key: str) -> bool:
        """True if the table has this key."""
        return key in self.data

    def get(self, key: str, kind: Callable[..., Any], default: Any) -> Any:
        """A value of a type (`object`: of any)."""
        self._taken[key] = None
        value = self.data.get(key, default)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = as_float(value)
        if value is not default and (
            not isinstance(value, kind) or (kind is int and isinstance(value, bool))  # type: ignore[arg-type]
        ):
            name = getattr(kind, "__name__", str(kind))
            raise PlanError(f"{self.where}: {self.prefix}{key} is {cut(value)}; a value of type {name} is right")
        return value

    def seconds(self, key: str, default: float) -> float:
        """A duration."""
        self._taken[key] = None
        try:
            return seconds(self.data.get(key, default), f"{self.where}: {self.prefix}{key}")
        except OptionError as problem:
            raise PlanError(str(problem)) from None

    def strings(self, key: str) -> tuple[str, ...]:
        """A list of strings."""
        self._taken[key] = None
        value = self.data.get(key, [])
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise PlanError(f"{self.where}: {self.prefix}{key} is {cut(value)}; a list of strings is right")
        return tuple(value)

    def table(self, key: str) -> Table:
        """A table in this one."""
        self._taken[key] = None
        return Table(self.data.get(key, {}), self.where, f"{key}: ")

    def tables(self, key: str) -> list[Table]:
        """A list of tables (`[[key]]`)."""
        self._taken[key] = None
        value = self.data.get(key, [])
        if not isinstance(value, list):
            raise PlanError(f"{self.where}: {key} must be a list of tables: write [[{key}]]")
        return [Table(entry, self.where, f"{key} {i}: ") for i, entry in enumerate(value, start=1)]

    def rest(self) -> dict[str, Any]:
        """The keys that were not taken: options of other owners."""
        return {key: value for key, value in self.data.items() if key not in self._taken}

    def reject_unknown(self) -> None:
        """Raises PlanError for a key that was not taken."""
        for key in self.rest():
            raise PlanError(f"{self.where}: {self.prefix}unknown key {cut(key)}{suggest(key, self._taken)}")


def flat(table: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """`{dledger: {a: 1}}` and `{"dledger.a": 1}` alike give `("dledger.a", 1)`."""
    if prefix.count(".") > _DEEPEST:
        raise PlanError(f"the settings are nested more than {_DEEPEST} deep, from {cut(prefix)} on")
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def shell_words(text: str, where: str) -> list[str]:
    """A text as a shell splits it into words. Raises PlanError for a quote that is not closed."""
    # Imported here: commands without a plan load this module, too.
    import shlex

    try:
        return shlex.split(text)
    except ValueError as problem:
        raise PlanError(f"{where} is {cut(text)}: {problem}; words of a shell are right") from None


def scalar_text(value: object) -> str:
    """A value as servers' settings have it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def without_none(**entries: Any) -> dict[str, Any]:
    """Leaves out values that are None: TOML has no null."""
    return {key: value for key, value in entries.items() if value is not None}


def check(right: object, what: str, value: object, wanted: str) -> None:
    """Raises PlanError unless `right`."""
    if not right:
        raise PlanError(f"{what} is {cut(value)}; {wanted} is right")
