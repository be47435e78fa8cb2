# SPDX-License-Identifier: Apache-2.0
"""The equality of values, defined here once for all formats and all models.

Values come from JSON, EDN or Python, and Python's `==` differs from the clients' meaning: to it `True` is 1.

* Numbers are the same when they are equal as numbers: 1 is 1.0, and 0 is -0.0. JSON has one sort of number only
  (RFC 8259, section 6), and a client that went through JavaScript writes 1.0 as 1.
* `true` and `false` are no numbers, and texts are no numbers either.
* Texts are the same character by character; nothing is normalized.
* Lists by their elements in order (a tuple is a list), objects by their fields in any order. No list is an object.
* Not a number is the text "NaN", as in the reader of EDN, too: a value that was written can be read again.
"""

from __future__ import annotations

from enum import Enum
from typing import Any


class Truth(Enum):
    """The form of `true` and `false`: equal to Python's, and to no number."""

    NO = False
    YES = True

    def __eq__(self, other: object) -> bool:
        return self is other or self.value is other

    def __hash__(self) -> int:
        return hash(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __repr__(self) -> str:
        return "true" if self else "false"

    __str__ = __repr__


class Fields(frozenset[tuple[Any, Any]]):
    """The form of an object: its (name, value) pairs."""


def freeze(value: Any) -> Any:
    """A JSON value in a hashable form, equal to all forms of the same value, and to nothing else.

    Numbers, texts and None stay unchanged; lists become tuples, objects `Fields`, truth values `Truth`. Any other
    hashable value keeps its own `==`.

    >>> freeze(1.0) == freeze(1), freeze(True) == freeze(1), freeze([True]) == freeze([1])
    (True, False, False)
    >>> freeze({"a": [1], "b": 2}) == freeze({"b": 2, "a": [1.0]})
    True
    """
    kind = type(value)
    if value is None or kind is int or kind is str:
        return value
    if kind is bool:
        return Truth.YES if value else Truth.NO
    if isinstance(value, (list, tuple)):
        return tuple([freeze(v) for v in value])
    if isinstance(value, dict):
        return Fields([(k, freeze(v)) for k, v in value.items()])
    return "NaN" if value != value else value  # noqa: PLR0124
