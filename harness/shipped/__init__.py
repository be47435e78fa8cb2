# SPDX-License-Identifier: Apache-2.0
"""The plans, suites, mutants and recorders of `examples/` and the pages of the findings, as part of the package:
commands of findings and documents name them, also where the package is installed without a checkout.

`plans`, `suites`, `mutants`, `recorders` and `findings` are links to folders of the checkout. A wheel has the files
themselves.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from results.reading import exists

_HERE: Final = Path(__file__).parent

_NAMED: Final = "examples"
"""The first part of the path of a plan, a suite or a mutant in a command: relative to a checkout."""


def shipped(path: Path) -> Path:
    """The path itself if it exists, or names no example; else the example of the package, if it has one."""
    if path.parts[:1] != (_NAMED,) or exists(path):
        return path
    found = _HERE.joinpath(*path.parts[1:])
    return found if exists(found) else path


def shipped_page(file: str) -> Path:
    """The page of a finding. file: its name without a suffix, such as `05-cut-off-master`."""
    return _HERE / "findings" / f"{file}.md"
