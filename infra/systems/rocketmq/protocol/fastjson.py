# SPDX-License-Identifier: Apache-2.0
"""A reader of the JSON that servers send: fastjson's dialect, in which keys need not be strings.

A map with integer keys comes as `{0:"10.0.0.1:10911"}`, one with objects as keys as `{{"queueId":0,...}:7}`. The
result has plain JSON types: such a key becomes its own JSON text, `"0"` or `'{"queueId":0}'` (members in order of name,
no spaces), so that `json.loads(key)` gives it back.

Source: `RemotingSerializable.encode` hands maps to fastjson, whose writer quotes no key that is no string.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_DECODER: Final = json.JSONDecoder()
_DEPTH: Final = 100
"""Far deeper than any answer; a hostile one must not exhaust the stack."""


class FastjsonError(ValueError):
    """The text is no JSON, not even in the dialect. One line, with the place."""


def loads(data: bytes | str) -> Any:
    """The value in a text. Raises FastjsonError.

    >>> loads('{0:"n1:10911",1:"n2:10911"}')
    {'0': 'n1:10911', '1': 'n2:10911'}
    """
    try:
        text = data.decode() if isinstance(data, bytes) else data
    except UnicodeDecodeError as e:
        raise FastjsonError(f"not UTF-8: {e}") from None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass  # Standard JSON is the fast case; the reader below reports the error.
    reader = _Reader(text)
    value = reader.value(0)
    reader.expect_end()
    return value


class _Reader:
    """Recursive descent over one text; `at` is the present position."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def value(self, depth: int) -> Any:
        if depth > _DEPTH:
            raise self._error(f"nested deeper than {_DEPTH}")
        self._skip()
        match self.text[self.at : self.at + 1]:
            case "{":
                return self._object(depth)
            case "[":
                return self._array(depth)
        try:
            value, self.at = _DECODER.raw_decode(self.text, self.at)
        except ValueError:
            raise self._error("no value") from None
        return value

    def expect_end(self) -> None:
        self._skip()
        if self.at != len(self.text):
            raise self._error("more after the value")

    def _object(self, depth: int) -> dict[str, Any]:
        self.at += 1
        found: dict[str, Any] = {}
        if self._took("}"):
            return found
        while True:
            key = self.value(depth + 1)
            if not self._took(":"):
                raise self._error("no ':' after the key")
            found[key if isinstance(key, str) else canonical(key)] = self.value(depth + 1)
            if self._took("}"):
                return found
            if not self._took(","):
                raise self._error("neither ',' nor '}' after the member")

    def _array(self, depth: int) -> list[Any]:
        self.at += 1
        found: list[Any] = []
        if self._took("]"):
            return found
        while True:
            found.append(self.value(depth + 1))
            if self._took("]"):
                return found
            if not self._took(","):
                raise self._error("neither ',' nor ']' after the element")

    def _took(self, mark: str) -> bool:
        self._skip()
        if self.text.startswith(mark, self.at):
            self.at += 1
            return True
        return False

    def _skip(self) -> None:
        space = _SPACE.match(self.text, self.at)
        assert space is not None
        self.at = space.end()

    def _error(self, what: str) -> FastjsonError:
        return FastjsonError(f"{what} at character {self.at}: {self.text[self.at : self.at + 40]!r}")


def canonical(value: Any) -> str:
    """The text that represents a value if it is a key."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
