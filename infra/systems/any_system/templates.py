# SPDX-License-Identifier: Apache-2.0
"""Placeholders in the commands and files of a system: `{address}` is the address of the command's own node.

>>> fill("--peer={n2}", {"n2": "198.18.0.12"})
'--peer=198.18.0.12'
>>> fill("awk '{{print $1}}'", {})
"awk '{print $1}'"
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from infra.options import suggest

_PLACE: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}?|\}")
NODE_NAME: Final = re.compile(r"n[1-9][0-9]{0,2}")


class TemplateError(ValueError):
    """A placeholder is wrong. One line: which one, and what would be right."""


def fill(text: str, values: Mapping[str, str]) -> str:
    """The text with a value for each `{name}`; `{{` and `}}` stand for braces. Raises TemplateError."""

    def value(found: re.Match[str]) -> str:
        whole, name = found[0], found[1]
        if whole in ("{{", "}}"):
            return whole[0]
        if name is None or not whole.endswith("}"):
            raise TemplateError(f"{text!r} has a single brace; {{{{ and }}}} stand for braces")
        if name not in values:
            raise TemplateError(f"no placeholder {{{name}}}{suggest(name, values) or '; ' + known(values)}")
        return values[name]

    return _PLACE.sub(value, text)


def check(text: str, names: Collection[str]) -> None:
    """Raises TemplateError for a placeholder that is not among the names; `{n1}`, `{n2}` ... are always known."""
    for found in _PLACE.finditer(text):
        if found[1] is not None and NODE_NAME.fullmatch(found[1]):
            names = {*names, found[1]}
    fill(text, dict.fromkeys(names, ""))


def known(names: Collection[str]) -> str:
    """The allowed placeholders, for an error line."""
    return ", ".join(f"{{{name}}}" for name in names) + " are right"
