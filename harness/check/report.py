"""The options and the result of `harness check` for one path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from checkers.linearizability.budget import Budget
from checkers.linearizability.checker import Linearizable
from checkers.linearizability.models import MODELS
from results.formats import ReadOptions
from results.record import RunRecord
from results.verdict import Judgement, Verdict


@dataclass(frozen=True)
class CheckOptions:
    """What to do with every path.

    steps   work that a whole history may cost, None: the default of `Budget`. memory: bytes of a search, the same;
            and of reading (`results.reading.memory_limit`).
    workload  what the histories are of, instead of a model: `log` or `queue` (`harness.check.foreign_messages`).
    explain_run  compares a stored run with the record of findings (`harness.findings.known`); None: nobody does.
    """

    format: str = "auto"
    options: ReadOptions = field(default_factory=ReadOptions)
    steps: int | None = None
    memory: int | None = None
    jit: bool = True
    witness: bool = False
    pictures: bool = False
    workload: str | None = None
    explain_run: Callable[[RunRecord, Judgement], Judgement] | None = None

    def checker(self, model: str) -> Linearizable:
        budget = Budget()
        if self.memory is not None:
            budget = replace(budget, memory=self.memory)
        if self.steps is None:
            return Linearizable(MODELS[model](), budget)
        return Linearizable(MODELS[model](), replace(budget, steps=self.steps, per_event=0), self.steps)


@dataclass(frozen=True)
class CheckReport:
    """What came of one path. `to_json` has the names that users see.

    ops       events of clients in the history (an op that was asked and answered is two).
    failing_op, core   indices of invocations in the history; of the key `key`, where there are several.
    core_starts_anywhere   see `LinearResult`.
    witness   for every key an order of all its ops that explains it: indices of invocations.
    lines     what else is to be said of it.
    pictures  one HTML page for each violation.
    damage    what speaks against the file, or was not stored: said beside the verdict.
    empty     no client did anything in this history.
    known, new   see `results.verdict.Judgement`; of a stored run. beside_known: its verdict without what is known.
    """

    file: str
    verdict: Verdict
    reason: str
    model: str | None = None
    ops: int = 0
    ms: float = 0.0
    algorithm: str | None = None
    anomaly: str | None = None
    key: str | None = None
    failing_op: int | None = None
    core: Sequence[int] = ()
    core_starts_anywhere: bool = False
    states: Sequence[str] = ()
    witness: Mapping[str | None, Sequence[int]] | None = None
    lines: Sequence[str] = ()
    pictures: Sequence[str] = ()
    stored_run: bool = False
    known: Sequence[int] = ()
    new: Sequence[str] | None = None
    beside_known: Verdict | None = None
    empty: bool = False
    notes: Sequence[str] = field(default_factory=tuple)
    damage: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "file": self.file,
            "model": self.model,
            "verdict": self.verdict.value,
            "reason": self.reason,
            "ops": self.ops,
            "ms": round(self.ms, 3),
            "algorithm": self.algorithm,
            "anomaly": self.anomaly,
            "key": self.key,
            "failing_op": self.failing_op,
            "core": list(self.core),
            "core_starts_anywhere": self.core_starts_anywhere,
            "states": list(self.states),
        }
        if self.new is not None:
            found |= {"known": list(self.known), "new": list(self.new)}
        if self.notes:
            found["notes"] = list(self.notes)
        if self.witness is not None:
            found["witness"] = [{"key": key, "ops": list(ops)} for key, ops in self.witness.items()]
        return found
