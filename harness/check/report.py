# SPDX-License-Identifier: Apache-2.0
"""The options and the result of `harness check` for one path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from checkers.linearizability import (
    KV,
    MODELS,
    Budget,
    CasRegister,
    Counter,
    Linearizable,
    Model,
    MultiRegister,
    Register,
)
from results.formats import ReadOptions
from results.verdict import Verdict

if TYPE_CHECKING:
    from harness.check.expected import Row
    from results.record import RunRecord
    from results.verdict import Judgement


@dataclass(frozen=True)
class CheckOptions:
    """Options for every path.

    steps   work that a whole history may cost, None: the default of `Budget`. memory: bytes of a search, the same;
            and of reading (`results.reading.memory_limit`).
    workload  the kind of the histories, instead of a model: `log` or `queue` (`harness.check.foreign_messages`).
    explain_run  compares a stored run with the record of findings (`harness.findings.known`); None: no comparison.
    ignore  names of ops that are left out; others that a model does not know are refused.
    initial  value of the objects at the start; ANYTHING: unknown; None: the model's default.
    """

    format: str = "auto"
    options: ReadOptions = field(default_factory=ReadOptions)
    steps: int | None = None
    memory: int | None = None
    jit: bool = True
    witness: bool = False
    pictures: bool = False
    plots: bool = False
    workload: str | None = None
    explain_run: Callable[[RunRecord, Judgement], Judgement] | None = None
    ignore: tuple[str, ...] = ()
    initial: Start | None = None

    def model(self, name: str, start: Any = None) -> Model[Any]:
        """The model with its start value: the requested one, or `start` of the history (`ForeignHistory`). Raises
        ValueError if it cannot begin with that.
        """
        if self.initial is None:
            found = MODELS[name]
            begins = start is not None and issubclass(found, (MultiRegister, Register))
            return STARTING[name](start) if begins else found()
        starting = STARTING.get(name)
        if starting is None:
            raise ValueError(f"--initial: the model {name} has no start value; {', '.join(STARTING)} have one")
        return starting(self.initial.value)

    def checker(self, model: str, start: Any = None) -> Linearizable:
        """The checker with its model. Raises ValueError as `model` does."""
        budget, made = Budget(), self.model(model, start)
        if self.memory is not None:
            budget = replace(budget, memory=self.memory)
        if self.steps is None:
            return Linearizable(made, budget, ignore=self.ignore)
        return Linearizable(made, replace(budget, steps=self.steps, per_event=0), self.steps, self.ignore)


@dataclass(frozen=True)
class Start:
    """A named start value, which may be None."""

    value: Any


STARTING: Final[Mapping[str, Callable[[Any], Model[Any]]]] = {
    model.name: model for model in (Register, CasRegister, MultiRegister, KV, Counter)
}
"""Models that have a start value."""


class Task(NamedTuple):
    """A path to judge. `shown`: its name in the output."""

    path: Path
    shown: str
    model: str | None
    row: Row | None


@dataclass(frozen=True)
class CheckReport:
    """The result for one path. `to_json` has the names that users see.

    ops       events of clients in the history (an op with an invocation and a completion is two).
    failing_op, core   indices of invocations in the history; of the key `key`, where there are several.
    core_starts_anywhere   see `LinearResult`.
    witness   for every key an order of all its ops that explains it: indices of invocations.
    lines     further remarks.
    pictures  one HTML page for each violation. plots: the page of its latency and rate.
    notes     what the reader changed or left out, and hints; shown beside the verdict. damage: notes on a damaged
              file, or on a verdict that was not stored.
    trace     the traceback if the check itself failed: only for `to_json`.
    empty     nothing is known to have happened in this history.
    implied   the model was not named, but follows from the ops.
    known, new   see `results.verdict.Judgement`; of a stored run. beside_known: its verdict without known anomalies.
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
    plots: str | None = None
    stored_run: bool = False
    known: Sequence[int] = ()
    new: Sequence[str] | None = None
    beside_known: Verdict | None = None
    empty: bool = False
    notes: Sequence[str] = field(default_factory=tuple)
    damage: Sequence[str] = ()
    trace: Sequence[str] = ()
    implied: bool = False

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
        if self.implied:
            found["implied"] = True
        if self.notes or self.trace:
            found["notes"] = [*self.notes, *self.trace]
        if self.witness is not None:
            found["witness"] = [{"key": key, "ops": list(ops)} for key, ops in self.witness.items()]
        return found
