# SPDX-License-Identifier: Apache-2.0
"""The stores of the web view, and the paths in it: each is confined to a store, its links included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote

from results.report.words import text

FILES: Final = "/files/"
_PAGES: Final = 12
"""The largest number of pages of nights and comparisons that the list names."""


@dataclass(frozen=True)
class Stores:
    """The stores of a view: a main one, and others by name. All roots are resolved.

    A path in the view is relative to the main store, or begins with `@NAME/`. No run's folder begins with `@`.
    """

    main: Path
    others: Mapping[str, Path] = field(default_factory=dict)

    @property
    def roots(self) -> list[Path]:
        return [self.main, *self.others.values()]

    def find(self, relative: str) -> Path | None:
        """The file or folder at a path of the view; see `confined`."""
        first, _, rest = relative.lstrip("/").partition("/")
        other = self.others.get(first[1:]) if first.startswith("@") else None
        return confined(self.main, relative) if other is None else confined(other, rest)

    def path_of(self, path: Path) -> str:
        """The path of the view for a file or folder in one of the stores."""
        for name, root in self.others.items():
            if path.is_relative_to(root):
                return Path(f"@{name}", path.relative_to(root)).as_posix()
        return path.relative_to(self.main).as_posix()

    def pages(self) -> list[tuple[str, str]]:
        """(name, address) of the pages of nights and comparisons, the newest first."""
        found = [page for root in self.roots for page in root.glob("*.html") if is_page(self, page.resolve())]
        found.sort(key=lambda page: page.stat().st_mtime, reverse=True)
        return [(text(self.path_of(page).removeprefix("@"), 80), href(self.path_of(page))) for page in found[:_PAGES]]


def is_page(stores: Stores, path: Path) -> bool:
    """True for a page of a night or a comparison: an HTML file at the top of a store."""
    return path.suffix == ".html" and path.parent in stores.roots and path.is_file()


def confined(root: Path, relative: str) -> Path | None:
    """The file or folder at a path in the store, all links resolved; None if it does not exist or lies outside.

    `root` must be resolved.
    """
    if "\0" in relative or ".." in relative.split("/"):
        return None
    try:
        found = (root / relative.lstrip("/")).resolve(strict=True)
    except (OSError, RuntimeError):
        return None
    return found if found.is_relative_to(root) else None


def href(relative: str) -> str:
    """The address of a path of the view."""
    return FILES + quote(relative, errors="surrogateescape")
