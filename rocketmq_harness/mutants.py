# SPDX-License-Identifier: Apache-2.0
"""Server mutants: the suite that runs each of them, and the table of those that the judges found.

    python -m rocketmq_harness.mutants results/nightly            # prints the table
    python -m rocketmq_harness.mutants results/nightly docs       # writes it into docs/mutants.md
    python -m rocketmq_harness.mutants --suite                    # prints examples/suites/mutants.toml

A mutant is a planted defect in the form of a mend (`examples/mutants/`). A run is of a mutant if its plan names the
file.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from checkers.base.evidence import own_lines
from harness.check.judging import judge_stored
from harness.findings.pages import write_table
from harness.findings.signature import not_tried
from harness.parts import registry
from harness.plan.plan import Plan
from harness.shipped import shipped
from infra.systems.api import TOPOLOGIES
from infra.systems.mends.catalog import Mend, Mutant, read_mends
from results.errors import ExpectedError
from results.reading import read_toml
from results.record import RunRecord
from results.store import RunDir, Store
from results.verdict import Judgement

FOLDER: Final = Path("examples/mutants")
PAGE: Final = "mutants.md"

Outcome = Literal["found", "missed", "not acted", "not decided"]

DEPTHS: Final[Mapping[str, str]] = {
    "a": "one fault or none",
    "b": "a second thing within two seconds of an event",
    "c": "two faults in order",
}

_FILE: Final = re.compile(r"(?:.*/)?mutants/(\d+)-[a-z0-9-]+\.toml")

_HEAD: Final = """\
# SPDX-License-Identifier: Apache-2.0
# Each server mutant under the faults that it needs, with all mends, so that nothing else shows (docs/mutants.md).
# Made by `python -m rocketmq_harness.mutants --suite`.
# harness nightly examples/suites/mutants.toml --once
time_limit = "45s"
"""


def read_mutants() -> list[Mend]:
    """The mutants of this project, by id. Raises SettingsError."""
    return [mend for mend in read_mends(shipped(FOLDER)) if mend.mutant is not None]


def file_of(mend: Mend) -> str:
    """The file of a mutant, as `--mend` takes it."""
    return str(FOLDER / f"{mend.id}-{mend.name}.toml")


# The suite.


def suite(mutants: Iterable[Mend]) -> str:
    """The suite as TOML: one cell for each mutant, in the order of their ids."""
    return _HEAD + "".join(f"\n{cell}" for mend in mutants if mend.mutant is not None for cell in [_cell(mend)])


def _cell(mend: Mend) -> str:
    assert mend.mutant is not None
    given, rest = _words(mend.mutant)
    plan = given.get("plan")
    workload = given.get("workload") or (Plan.read(Path(plan)).workload if plan else "log")
    owner = registry.find(registry.WORKLOADS, workload).cls
    topology = given.get("topology") or owner.topologies[0]
    lists = {
        "plan": f"../{Path(plan).relative_to('examples')}" if plan else None,
        "workload": workload,
        "topology": topology,
        "version": mend.versions[0].split()[-1],
        "profile": "strict" if "strict" in registry.find(TOPOLOGIES, topology).cls.profiles else None,
        "client": owner.clients[0] if owner.clients else None,
        "nemesis": given.get("nemesis"),
    }
    options = shlex.join(["--mend", f"all,{file_of(mend)}", *rest])
    lines = [f'{key} = ["{value}"]' for key, value in lists.items() if value is not None]
    return "\n".join(["[[cells]]", *lines, f'options = "{options}"']) + "\n"


def _words(mutant: Mutant) -> tuple[dict[str, str], list[str]]:
    """The options of a mutant's command that have a list in a cell, and the others."""
    given: dict[str, str] = {}
    rest: list[str] = []
    words = iter(shlex.split(mutant.run))
    for word in words:
        name = word.removeprefix("--")
        if name in ("plan", "workload", "topology", "nemesis"):
            given[name] = next(words)
        else:
            rest.append(word)
    return given, rest


# The table.


@dataclass(frozen=True)
class Tried:
    """One run of a mutant.

    shown   anomalies that make the run invalid: those of the mutant first, then others. permitted: anomalies of the
            mutant that the settings permit.
    """

    mutant: int
    outcome: Outcome
    shown: Sequence[str] = ()
    permitted: Sequence[str] = ()
    why: str = ""


def tried(stores: Iterable[Path], mutants: Sequence[Mend]) -> Iterator[Tried]:
    """The runs of mutants in some stores, judged again by the present code. Runs that cannot be read are left out, with
    a line on standard error.
    """
    known = {mend.id: mend for mend in mutants}
    for store in stores:
        for summary in Store(store).runs():
            try:
                mend = known.get(_planned(summary.path) or 0)
                if mend is None or mend.mutant is None:
                    continue
                record, judgement = judge_stored(RunDir(summary.path))
                yield outcome(mend.id, mend.mutant, record, judgement)
            except ExpectedError as problem:
                sys.stderr.write(f"{summary.path}: left out: {problem}\n")


def _planned(folder: Path) -> int | None:
    """The id of the mutant of a run's plan; None: it has none, or several."""
    try:
        named = read_toml(RunDir(folder).plan).get("server", {}).get("mends", ())
    except (OSError, ValueError, AttributeError):
        return None
    found = [match for word in named if (match := _FILE.fullmatch(str(word)))]
    return int(found[0][1]) if len(found) == 1 else None


def outcome(number: int, mutant: Mutant, record: RunRecord, judgement: Judgement) -> Tried:
    """The outcome of a run of a mutant. It is found if one of its anomalies makes the run invalid, and a server's log
    says that it acted. A run that acted and shows other anomalies only has missed it.
    """
    counted = {anomaly.name for anomaly in judgement.anomalies if anomaly.counts}
    shown = tuple(name for name in mutant.anomalies if name in counted)
    others = tuple(sorted(counted - set(shown)))
    allowed = {anomaly.name for anomaly in judgement.anomalies if anomaly.legal is not None} - counted
    permitted = tuple(name for name in mutant.anomalies if name in allowed)
    if not _acted(mutant, record):
        return Tried(number, "not acted", others + shown, permitted, not_tried(record, judgement) or "")
    if shown:
        return Tried(number, "found", shown + others, permitted)
    doubtful = [a for a in judgement.anomalies if a.name in mutant.anomalies and a.doubt is not None]
    why = not_tried(record, judgement) or next((f"{a.name}: {a.doubt}" for a in doubtful), "")
    return Tried(number, "not decided" if why else "missed", others, permitted, why)


def _acted(mutant: Mutant, record: RunRecord) -> bool:
    """True if a server's log has the mutant's line."""
    files = [path for paths in record.logs.values() for path in paths]
    return any(mutant.log in line for path in files for line in own_lines(path, record.environment))


def table(mutants: Sequence[Mend], runs: Iterable[Tried]) -> list[str]:
    """Lines of Markdown: the numbers of each depth, and a row for each mutant."""
    rows: dict[int, list[Tried]] = {mend.id: [] for mend in mutants}
    for run in runs:
        rows[run.mutant].append(run)
    lines = [
        "| depth | mutants | found | missed | not acted | not decided | not run |",
        "|---|---|---|---|---|---|---|",
    ]
    for depth, text in DEPTHS.items():
        results = [_result(rows[mend.id]) for mend in mutants if mend.mutant is not None and mend.mutant.depth == depth]
        counts = [results.count(word) for word in ("found", "missed", "not acted", "not decided", "not run")]
        lines.append(f"| {depth}: {text} | {len(results)} | {' | '.join(map(str, counts))} |")
    lines += ["", "| mutant | depth | promise | on | result | shown |", "|---|---|---|---|---|---|"]
    for mend in mutants:
        if mend.mutant is not None:
            lines.append(_row(mend, mend.mutant, rows[mend.id]))
    return lines


def _result(runs: Sequence[Tried]) -> str:
    """The best outcome of several runs: one that finds it is enough, and one that did not act says least."""
    found = {run.outcome for run in runs}
    order: Sequence[Outcome] = ("found", "missed", "not decided", "not acted")
    return next((word for word in order if word in found), "not run")


def _row(mend: Mend, mutant: Mutant, runs: Sequence[Tried]) -> str:
    counts = Counter(run.outcome for run in runs)
    result = _result(runs)
    if len(runs) > 1:
        result = ", ".join(f"{word} in {n} of {len(runs)}" for word, n in counts.most_common())
    names = list(dict.fromkeys(f"`{name}`" for run in runs for name in run.shown))
    names += [f"`{name}` (permitted)" for name in dict.fromkeys(name for run in runs for name in run.permitted)]
    names += list(dict.fromkeys(run.why for run in runs if run.why))
    where = " and ".join(mend.versions)
    cells = [f"{mend.id} {mend.reason}", mutant.depth, mutant.promise, where, result, ", ".join(names) or "-"]
    return f"| {' | '.join(cells)} |"


def main(argv: Sequence[str]) -> None:
    """Prints the suite or the table, or writes the table into the page of a folder."""
    mutants = read_mutants()
    if list(argv) == ["--suite"]:
        sys.stdout.write(suite(mutants))
        return
    store, *docs = map(Path, argv)
    lines = table(mutants, tried([store], mutants))
    write_table(lines, docs[0] / PAGE if docs else None)


if __name__ == "__main__":
    main(sys.argv[1:])
