"""The plans and suites of `examples/`, as part of the package: commands of findings and documents name them.

`plans` and `suites` are links to the folders in `examples/`. An installed package has the files themselves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from results.reading import exists

_NAMED: Final = "examples"
"""How commands begin the path of a plan or a suite: relative to a checkout."""


def shipped(path: Path) -> Path:
    """The path itself if it exists, or names no example; else the example of the package, where it has one."""
    if path.parts[:1] != (_NAMED,) or exists(path):
        return path
    found = Path(__file__).parent.joinpath(*path.parts[1:])
    return found if exists(found) else path
