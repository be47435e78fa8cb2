# SPDX-License-Identifier: Apache-2.0
"""The list of runs in the web view: what is known of each run, the search, the order, the pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from results.errors import in_bytes
from results.reading import read_toml
from results.report.words import text
from results.retention import size_of
from results.store import RunSummary, Store
from results.web_stores import Stores, confined, href

PAGE: Final = 100
"""The number of runs on a page."""
_MENDS: Final = 40
"""The largest number of mends in a row."""
_SORTS: Final = ("time", "name", "verdict")


@dataclass(frozen=True)
class Facts:
    """The facts of a run from its plan; empty texts if the plan has none.

    version, build  of the servers: `5.5.0`, and the folder of the user's own jars. mends: their ids.
    """

    workload: str = ""
    nemesis: str = ""
    topology: str = ""
    version: str = ""
    build: str = ""
    mends: str = ""
    seed: str = ""


@dataclass(frozen=True)
class Row:
    """A run in the list. `label`: `<workload>-<nemesis>`; `folder`: its path in the store, with slashes; `known`: its
    known findings and new anomalies.
    """

    time: str
    label: str
    verdict: str
    reason: str
    folder: str
    known: str = ""
    facts: Facts = field(default_factory=Facts)

    def has(self, words: Sequence[str]) -> bool:
        """True if all words (in small letters) occur in the run's texts in the list, its store included."""
        texts = (self.time, self.label, self.verdict, self.known, self.reason, self.folder, *astuple(self.facts))
        found = " ".join(texts).casefold()
        return all(word in found for word in words)


@dataclass(frozen=True)
class Shown:
    """A row with the data that only the rows of one page need. store: its name, unless it is the main one. size: of all
    files.
    """

    row: Row
    facts: Facts
    store: str
    folder: str
    report: str | None
    size: str


def _rows(stores: Stores) -> list[Row]:
    """The runs of all stores, the newest first."""
    found = [_row(stores, run) for root in stores.roots for run in Store(root).runs()]
    return sorted(found, key=lambda row: row.time, reverse=True) if stores.others else found


def _row(stores: Stores, run: RunSummary) -> Row:
    verdict = run.verdict.value if run.verdict else "unreadable" if run.broken else "unfinished"
    plan = confined(run.path, "plan.toml")
    facts = _facts(plan, run.name) if plan is not None and plan.is_file() else Facts(text(run.name, 120))
    return Row(
        f"{run.time:%Y-%m-%d %H:%M:%S}",
        text(run.name, 120),
        verdict,
        text(run.reason),
        stores.path_of(run.path),
        _known(run),
        facts,
    )


def _known(run: RunSummary) -> str:
    """`known 5, 8; new lost`; empty if nothing needs an explanation, or the run was not compared with the findings."""
    known = [f"known {', '.join(map(str, run.known))}"] if run.known else []
    new = [f"new {', '.join(run.new)}"] if run.new else []
    return text("; ".join([*known, *new]), 200)


def index(stores: Stores, requested: Mapping[str, str]) -> dict[str, Any]:
    """The content of the list: the runs with all the words of `q`, sorted by `sort`, page `page` of them."""
    query = requested.get("q", "")[:200]
    sort = requested.get("sort", "time") if requested.get("sort") in _SORTS else "time"
    up = requested.get("order", "asc" if sort != "time" else "desc") == "asc"
    rows = _rows(stores)
    found = [row for row in rows if row.has(query.casefold().split())]
    if sort == "time":
        found = found[::-1] if up else found
    else:
        # Sorting is stable: among equals the newest stays first.
        found.sort(key=lambda row: row.label if sort == "name" else row.verdict, reverse=not up)
    pages = max(1, -(-len(found) // PAGE))
    number = requested.get("page", "1")
    page = min(max(int(number) if number.isdecimal() and len(number) < 9 else 1, 1), pages)

    def link(**changes: object) -> str:
        now = {"q": query, "sort": sort, "order": "asc" if up else "desc", "page": 1}
        return "/?" + urlencode({k: v for k, v in {**now, **changes}.items() if v != ""}, errors="replace")

    return {
        "runs": [_shown(stores, row) for row in found[(page - 1) * PAGE : page * PAGE]],
        "total": len(rows),
        "night_pages": stores.pages(),
        "found": len(found),
        "query": query,
        "sort": sort,
        "up": up,
        "page": page,
        "pages": pages,
        "earlier": link(page=page - 1) if page > 1 else None,
        "later": link(page=page + 1) if page < pages else None,
        "sorted_by": {s: link(sort=s, order="desc" if s == sort and up else "asc") for s in _SORTS},
    }


def _shown(stores: Stores, row: Row) -> Shown:
    folder = stores.find(row.folder)
    report = stores.find(f"{row.folder}/report.html")
    shown = href(f"{row.folder}/report.html") if report is not None and report.is_file() else None
    store = row.folder.partition("/")[0][1:] if row.folder.startswith("@") else ""
    size = in_bytes(size_of(folder)) if folder is not None else ""
    return Shown(row, row.facts, store, href(row.folder + "/"), shown, size)


def _facts(plan: Path, name: str) -> Facts:
    """The facts of a plan. If it is unreadable, the folder's name replaces the workload."""
    try:
        state = plan.stat()
        return _facts_of(plan, state.st_mtime_ns, state.st_size)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Facts(text(name, 120))


def _id(mend: str) -> str:
    """The id of a mend, of `16` or `mutants/1001-name.toml`."""
    return text(mend.rpartition("/")[2].partition("-")[0], 10)


@lru_cache(maxsize=20_000)
def _facts_of(plan: Path, changed_ns: int, size: int) -> Facts:
    """Facts of a plan, read once for each state of the file."""
    tables = read_toml(plan, follow=False)
    server = tables.get("server", {})
    return Facts(
        workload=text(tables["workload"], 60),
        nemesis=", ".join(text(n["fault"], 60) for n in tables.get("nemesis", [])) or "none",
        topology=" ".join(text(server[name], 60) for name in ("topology", "profile") if server.get(name)),
        version=text(server.get("version", ""), 30),
        build=text(server.get("jars", ""), 60),
        mends=", ".join(_id(mend) for mend in server.get("mends", ())[:_MENDS]),
        seed=text(str(tables.get("seed", "")), 20),
    )
