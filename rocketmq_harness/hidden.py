# SPDX-License-Identifier: Apache-2.0
"""Finds packages that hide ours: a user's own `results` or `infra` that comes first on `sys.path`.

Imports nothing but Python itself, since none of our packages can be relied on here.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

OURS: Final = ("harness", "nemesis", "checkers", "workloads", "infra", "results")
"""The packages that belong beside this one."""


class HiddenPackage(ImportError):
    """A package of another project is found in place of the harness's. One line: which, where, and the remedy."""


@cache
def require_ours(home: Path = Path(__file__).parents[1]) -> None:
    """Raises HiddenPackage unless Python finds each of our packages in `home`. Loads none of them."""
    for name in OURS:
        place = _place(name)
        if place is None:
            raise HiddenPackage(
                f"the package {name!r} of rocketmq-harness is missing in {str(home)!r}; install it again"
            )
        if place.resolve().parent != home.resolve():
            raise HiddenPackage(
                f"{str(place)!r} hides the package {name!r} of rocketmq-harness ({str(home / name)!r}); "
                f"rename it, or {_remedy(place.parent)}"
            )


def _place(name: str) -> Path | None:
    """The folder of a package, or the file of a module, as `import` would find it. None if nothing is found."""
    loaded = sys.modules.get(name)
    spec = find_spec(name) if loaded is None else getattr(loaded, "__spec__", None)
    if spec is None:
        return None
    folders = list(spec.submodule_search_locations or ())
    found = folders[0] if folders else spec.origin
    return Path(found) if found else None


def _remedy(folder: Path) -> str:
    named = {os.path.realpath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry}
    if os.path.realpath(folder) in named:
        return f"remove {str(folder)!r} from PYTHONPATH"
    return "start in another folder or with python -P"
