# SPDX-License-Identifier: Apache-2.0
"""The sources that a verdict depends on, found by following imports."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from harness.plan.plan import PlanError

_JUDGING: Final = ("checkers", "results", "workloads", "harness.check", "harness.batch")
"""The packages that judge. Their other imports (options, machines, generators) make runs, and no verdicts."""
_PAGES: Final = ("results.report",)
"""Packages that show a verdict to people, and cannot change it."""

_IMPORT: Final = re.compile(
    r"^[ \t]*(?:from[ \t]+(?P<module>[\w.]+)[ \t]+import[ \t]+(?P<names>\([^)]*\)|[^\n]*)"
    r"|import[ \t]+(?P<alone>[\w.]+))",
    re.MULTILINE,
)
"""An import statement. One inside a text counts, too: a source too many does no harm."""


def sources_of(modules: Collection[str]) -> list[Path]:
    """Paths of these modules and of all modules that judge and that they import, each once, in order of their names.
    A module of another package (a plug-in of a user) brings those of its own package.

    Raises PlanError if one of the modules has no source: a version without it would stay the same when the module
    changes, and no stored verdict would be renewed.
    """
    followed = {*_JUDGING, *(name.partition(".")[0] for name in modules if not _is_in(name, ("harness",)))}
    found: dict[str, Path] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        source = _source(name)
        if source is None:
            if name in modules:
                raise PlanError(
                    f"the sources of {name} were not found, so a change in them could not renew the stored verdicts; "
                    "install the package that it belongs to again, or remove it"
                )
            continue  # a name in a module, such as a function
        found[name] = source
        package = name if source.name == "__init__.py" else name.rpartition(".")[0]
        others = (other for other in _imported(source, package) if not _is_in(other, _PAGES))
        waiting += [other for other in others if _is_in(other, followed)]
    return [found[name] for name in sorted(found)]


def _is_in(name: str, packages: Iterable[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


@cache
def _places(package: str) -> Sequence[str]:
    """The paths of a top-level package's folders, or of a top-level module without its suffix."""
    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return ()
    if spec is not None and spec.submodule_search_locations is not None:
        return list(spec.submodule_search_locations)
    return [spec.origin.removesuffix(".py")] if spec is not None and spec.has_location and spec.origin else ()


def _source(name: str) -> Path | None:
    package, *parts = name.split(".")
    bases = [Path(place, *parts) for place in _places(package)]
    paths = (path for base in bases for path in (base / "__init__.py", base.with_name(f"{base.name}.py")))
    return next((path for path in paths if path.is_file()), None)


def _imported(source: Path, package: str) -> Iterator[str]:
    """Yields the names that a module imports anywhere, also in a function, and the packages that they are in."""
    for found in _IMPORT.finditer(source.read_bytes().decode("utf-8", "replace")):
        module = found["module"] or found["alone"]
        if module.startswith("."):
            name = module.lstrip(".")
            above = package.split(".")[: 1 - (len(module) - len(name)) or None]
            module = ".".join([*above, *filter(None, [name])])
        parts = module.split(".")
        yield from (".".join(parts[: i + 1]) for i in range(len(parts)))
        yield from (f"{module}.{name}" for name in re.findall(r"\w+", found["names"] or ""))
