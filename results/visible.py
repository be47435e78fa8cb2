# SPDX-License-Identifier: Apache-2.0
"""Makes text from files and servers safe to display: invisible characters become escapes."""

from __future__ import annotations

from typing import Final

THIN_SPACE: Final = "\u202f"


def visible(text: str, keep: str = f"\n\t{THIN_SPACE}") -> str:
    """The text with invisible characters (control characters, marks that change the direction of writing, lone
    surrogates) as escapes. `keep`: characters that stay unchanged.

    >>> visible("a\\x00b")
    'a\\\\x00b'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)
