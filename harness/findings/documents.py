# SPDX-License-Identifier: Apache-2.0
"""The promises of a document, as data (`harness/findings/promises/NAME.toml`), and whether one held in a run.

    page = "clients"                     # docs/clients.md has the table; without it the document's own name
    topology = "controller"              # of all its runs: not part of the names of kinds of runs
    options = ["controller_type"]        # these are part of them

    [faults]                             # shorter names; a fault may stand with its target
    kill-random-processes = "kill"
    "kill-random-processes proxy" = "proxy killed"

    [[promise]]
    id = "D1"
    text = "an acknowledged delayed message appears"
    workload = "delay"                   # whose runs try it
    judge = "delays"                     # the judge that must have decided; without it, any
    anomalies = ["delayed-lost"]         # each of them breaks it
    needs = ["delay"]                    # ops without which a run did not try it

With `columns`, the table has a column for each kind of clients, and the record has each run (`run_by_run`):

    columns = ["library", "listener"]    # the options of the workload that make a kind
    topologies = ["controller"]          # of which each kind should have a run under each fault

    [kinds]                              # their values -> the name of the column
    "remoting orderly" = "push, orderly"
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from harness.findings.judged_runs import planned_faults
from harness.plan.table import Table
from results.reading import read_toml
from results.record import RunRecord
from results.verdict import Judgement, Verdict

FOLDER: Final = Path(__file__).with_name("promises")
DOCS: Final = Path(__file__).parents[2] / "docs"
QUIET: Final = "quiet"

_NEEDED: Final = ("stats", "faults", "complete", "well-formed")
"""If one of these checkers is not `valid`, the run tried too little to judge a promise."""


@dataclass(frozen=True)
class Promise:
    """id  as the document or the design calls it. workload: whose runs try it.
    anomalies  names; each of them breaks it, unless the configuration permits it.
    needs  kinds of ops: a run without an `ok` one did not try it. judge: the judge that must have decided; "": any.
    """

    id: str
    text: str
    workload: str
    anomalies: Sequence[str]
    needs: Sequence[str] = ()
    judge: str = ""


@dataclass(frozen=True)
class Document:
    """The promises of a document. `topology` is not in the names of kinds of runs; `faults` have shorter names there.
    `options` of the workload, or of the topology, are part of these names.

    page  the name of the page with its table; "": that of the document. columns, kinds, topologies: see the package.
    never  fault -> the kinds of clients that it cannot strike.
    """

    promises: Sequence[Promise]
    topology: str = ""
    faults: Mapping[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()
    page: str = ""
    columns: Sequence[str] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    topologies: Sequence[str] = ()
    never: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def kind(self, record: RunRecord) -> str:
        """The name of a run's kind: version, topology, options, mends and faults."""
        server = record.plan.get("server", {})
        topology = str(server.get("topology", ""))
        words = [record.version or str(server.get("version", "")), "" if topology == self.topology else topology]
        words += [_word(name, record.plan.get(name, server.get(name))) for name in self.options]
        words += ["mended " + ",".join(map(str, server["mends"]))] if server.get("mends") else []
        return " ".join(word for word in (*words, *self.faults_of(record.plan)) if word)

    def faults_of(self, plan: Mapping[str, Any]) -> Sequence[str]:
        """The names of a plan's faults: of each one drawn, or once of each kind written out."""
        names = [self._fault(one) for one in plan.get("nemesis", ())]
        return names or sorted({self._fault(one) for one in planned_faults(plan)}) or [self.faults.get(QUIET, QUIET)]

    def _fault(self, planned: Mapping[str, Any]) -> str:
        name = str(planned.get("fault"))
        return self.faults.get(f"{name} {planned.get('target', '')}", self.faults.get(name, name))

    def column(self, plan: Mapping[str, Any]) -> str:
        """The kind of a run's clients."""
        kind = " ".join(str(plan.get(name, "")) for name in self.columns)
        return self.kinds.get(kind, kind)

    def tries(self, plan: Mapping[str, Any]) -> bool:
        """True if a run of this plan can judge one of the promises."""
        return any(promise.workload == plan.get("workload") for promise in self.promises)


def read_promises(path: Path) -> Document:
    """Reads a document's promises. Raises PlanError for a wrong file, OSError for an unreadable one."""
    table = Table(read_toml(path), str(path), "")
    found = []
    for entry in table.tables("promise"):
        name, text, workload, judge = (entry.get(key, str, "") for key in ("id", "text", "workload", "judge"))
        found.append(Promise(name, text, workload, entry.strings("anomalies"), entry.strings("needs"), judge))
        entry.reject_unknown()
    topology, page = table.get("topology", str, ""), table.get("page", str, "")
    faults, kinds = (
        {str(word): str(short) for word, short in table.get(key, dict, {}).items()} for key in ("faults", "kinds")
    )
    options, columns, topologies = (table.strings(key) for key in ("options", "columns", "topologies"))
    never = {fault: [str(kind) for kind in of] for fault, of in table.get("never", dict, {}).items()}
    table.reject_unknown()
    return Document(found, topology, faults, options, page, columns, kinds, topologies, never)


def broken(promise: Promise, record: RunRecord, judgement: Judgement) -> set[str] | None:
    """Anomalies of a run that break a promise; None if the run cannot judge it. An anomaly in doubt (a machine that
    was too small) is not counted.
    """
    named = [a for a in judgement.anomalies if a.name in promise.anomalies and a.legal is None]
    certain = {a.name for a in named if a.doubt is None}
    if certain:
        return certain
    untried = any(r.checker in _NEEDED and r.verdict != Verdict.VALID for r in judgement.results)
    if promise.judge:
        decided = [r for r in judgement.results if r.checker == promise.judge and r.verdict != Verdict.UNKNOWN]
        untried = untried or not decided
    done = {op.f for op in record.history if op.type == "ok"} if promise.needs else set()
    return None if untried or named or not done.issuperset(promise.needs) else set()


def linked(*anomalies: str) -> str:
    """The names of anomalies, each with a link to its chapter."""
    return ", ".join(f"[`{name}`](anomalies.md#{name})" for name in anomalies)


def _word(option: str, value: object) -> str:
    """An option as a word: its value, or its name if it is a switch."""
    if isinstance(value, bool):
        return option if value else f"no {option}"
    return "" if value is None else str(value)
