# SPDX-License-Identifier: Apache-2.0
"""Checks one history or one stored run: the work of `harness check` for each path, possibly in its own process."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from checkers.converging import CONVERGING
from checkers.linearizability import Linearizable, LinearResult, MultiRegister, Register
from checkers.linearizability.check import calls_by_key
from checkers.linearizability.compiled.jit import plain
from checkers.linearizability.direct import MANY
from checkers.linearizability.history.encode import first_unknown, unknown
from checkers.linearizability.models import MODELS
from checkers.linearizability.models.registers import ELLE
from checkers.linearizability.models.specification import Model
from checkers.run.wellformed import WellFormed
from harness.check.decision import NOTHING_THERE, DecisionTime
from harness.check.hints import hints, other_elements, other_values, words_for_nothing
from harness.check.report import STARTING, CheckOptions, CheckReport
from harness.plan.table import PlanError
from results.errors import HistoryError, StoreError, with_article
from results.formats import ForeignHistory, OpenedHistory, open_history
from results.formats.implied import appends, implied_by, implied_model
from results.history import History
from results.op import INVOKE, OK
from results.verdict import CheckResult, Verdict

if TYPE_CHECKING:
    import pyarrow as pa

_STEPS = "multi-register has steps [read, name, value] and [write, name, value]"
_PICTURES = 20
"""Violations of one history (one a key) that get a picture."""


def examine(path: Path, shown: str, model: str | None, check_options: CheckOptions) -> CheckReport:
    """Judges a file, or the folder of a stored run. Never raises for its content: a bad one is `unknown`."""
    try:
        with nullcontext() if check_options.jit else plain():
            if path.is_dir():
                return _stored(path, shown, check_options)
            with open_history(path, check_options.format) as history:
                return _history(history, shown, model, check_options)
    except HistoryError as problem:
        return CheckReport(shown, Verdict.UNKNOWN, str(problem), model, stored_run=path.is_dir())
    except PlanError as problem:
        # A problem of this run alone: its workload is not installed here, say.
        return CheckReport(shown, Verdict.UNKNOWN, f"{path}: {problem}", model, stored_run=True)
    except MemoryError:
        return CheckReport(shown, Verdict.UNKNOWN, f"{path}: there is not enough memory for it", model)
    except RecursionError:
        return CheckReport(shown, Verdict.UNKNOWN, f"{path}: a value in it is nested too deeply", model)
    except Exception as problem:
        # A bug in a reader or a checker must not keep the other histories from being checked, nor pass for a verdict.
        reason = f"{path}: the check itself failed ({type(problem).__name__}: {problem}): a bug, please report"
        import traceback

        trace = tuple(traceback.format_exc().splitlines())
        return CheckReport(shown, Verdict.UNKNOWN, " ".join(reason.split()), model, trace=trace)


def _stored(path: Path, shown: str, check_options: CheckOptions) -> CheckReport:
    """Judges a stored run, by its own plan and with all its workload's checkers. Writes its verdict and report again,
    if the store takes them.
    """
    # Only here: plots and reports take longer to load than a small history takes to check.
    from harness import progress
    from harness.check.judging import judge_stored, with_evidence, write_results
    from harness.check.summary import check_lines, known_lines
    from results.store import RunDir

    progress.report()
    began = time.perf_counter()
    folder = RunDir(path.resolve())
    record, judgement = judge_stored(folder, check_options.memory)
    if check_options.explain_run is not None:
        judgement = check_options.explain_run(record, judgement)
    judgement = with_evidence(folder, judgement)
    damage = [str(record.environment["history"])] if "history" in record.environment else []
    try:
        write_results(folder, record, judgement, time.perf_counter() - began)
    except StoreError as problem:
        damage.append(f"the verdict counts, but it could not be stored: {problem}")
    first = judgement.anomalies[0] if judgement.anomalies else None
    return CheckReport(
        shown,
        judgement.verdict,
        judgement.reason,
        ops=int(judgement.results[0].stats.get("ops", 0)),
        ms=sum(result.ms for result in judgement.results),
        anomaly=first.name if first else None,
        key=first.key if first else None,
        core=first.ops if first else (),
        lines=[
            *known_lines(judgement),
            *(line for result in judgement.results for line in check_lines(result, judgement.new)),
        ],
        stored_run=True,
        damage=damage,
        known=[finding.id for finding in judgement.known],
        new=judgement.new,
        beside_known=judgement.verdict_beside_known,
    )


def _history(history: OpenedHistory, shown: str, model: str | None, check_options: CheckOptions) -> CheckReport:
    if not check_options.plots and check_options.workload is None:
        quick = _by_columns(history, shown, model, check_options)
        if quick is not None:
            return quick
    with history.limited(check_options.memory):
        foreign = history.read(check_options.options)
    found = _judged(history, foreign, shown, model, check_options)
    if not check_options.plots:
        return found
    # Only here: pages take longer to load than a small history takes to check.
    from harness.check.plots_page import with_plots

    return with_plots(found, foreign.history)


def _of_messages(
    history: OpenedHistory, foreign: ForeignHistory, shown: str, model: str | None, check_options: CheckOptions
) -> CheckReport | None:
    """The verdict on a history of messages. None: it is one of a model."""
    workload = check_options.workload
    by_value = model is None and foreign.format == "openchaos"
    unnamed = model is None and workload is None and not by_value
    if workload is None and not by_value and not (unnamed and _sends(foreign.history)):
        return None
    # Only here: workloads take longer to load than a small history takes to check.
    from harness.check.foreign_messages import by_values, implied_workload, judged

    if by_value:
        return by_values(foreign, shown)
    chosen = workload or implied_workload(history.path, foreign.history, check_options)
    if chosen is None:
        return None
    return replace(judged(history, foreign, shown, chosen, check_options), implied=unnamed)


def _sends(history: History) -> bool:
    """True if these may be ops of messages."""
    # Only here: most users name the model.
    from results.formats.micro_ops import has_micro_ops

    return any(op.f == "send" for op in history.clients) or has_micro_ops(history)


def _judged(
    history: OpenedHistory, foreign: ForeignHistory, shown: str, model: str | None, check_options: CheckOptions
) -> CheckReport:
    path = history.path
    of_messages = _of_messages(history, foreign, shown, model, check_options)
    if of_messages is not None:
        return of_messages
    chosen = model or (implied_model(foreign.history, check_options.ignore) if check_options.ignore else foreign.model)
    if chosen is None:
        raise HistoryError(path, None, why_no_model(foreign.history))
    if chosen in CONVERGING:
        # Only here: most histories are of a model of linearizability.
        from harness.check import converging

        return converging.judged(path, foreign, shown, chosen, model is None, check_options)
    try:
        checker = check_options.checker(chosen, foreign.start)
    except ValueError as problem:
        raise HistoryError(path, None, str(problem)) from None
    ops, notes = len(foreign.history.clients), [*foreign.notes, *_left_out(foreign, checker.model, check_options)]
    whole = CheckReport(
        shown, Verdict.UNKNOWN, "", chosen, ops=ops, notes=notes, damage=tuple(foreign.damage), implied=model is None
    )
    if not whole.ops:
        return replace(whole, reason=NOTHING_THERE, empty=True)
    other = first_unknown(foreign.history.clients, checker.model, check_options.ignore)
    if other is not None:
        raise HistoryError(path, None, f"{unknown(other, checker.model)}; --ignore {other.f} leaves it out")
    odd = _odd_values(foreign.history, chosen, check_options)
    if odd is not None:
        raise HistoryError(path, None, odd)
    formed = WellFormed().examine(foreign.history)
    if formed.verdict != Verdict.VALID:
        reason = f"{formed.checker}: {formed.reason}"
        return replace(whole, verdict=formed.verdict, reason=reason, anomaly=formed.anomalies[0].name)
    clock = DecisionTime()
    result, keys = checker.examine(foreign.history)
    ignored = check_options.ignore
    happened = any(op.type == OK and op.f not in ignored for op in foreign.history.clients)
    found = replace(
        whole, verdict=result.verdict, reason=result.reason, algorithm=algorithms(result), ms=clock.ms,
        empty=bool(keys) and not happened,
    )  # fmt: skip
    if result.verdict == Verdict.VALID:
        orders = {key: tuple(r.witness or ()) for key, r in keys.items()} if check_options.witness else None
        return replace(found, witness=orders)
    starts = chosen in STARTING and check_options.initial is None
    found = replace(found, notes=[*found.notes, *hints(foreign.history, result, starts)])
    if result.verdict != Verdict.INVALID:
        return found
    return _violations(found, foreign.history, keys, check_options, checker)


def _odd_values(history: History, model: str, check_options: CheckOptions) -> str | None:
    """The reason why what was shown is in another form than what was written; None: it is not."""
    if model in ("grow-only-set", "set"):
        return other_elements(history)
    if model in _TAKEN_FROM:
        return words_for_nothing(history)
    return other_values(history) if model in STARTING and check_options.initial is None else None


_TAKEN_FROM: Final = ("fifo-queue", "unordered-queue", "stack")


def _left_out(foreign: ForeignHistory, model: Model[Any], check_options: CheckOptions) -> Iterator[str]:
    """Yields the limits of a verdict: the ops that it leaves out, and the start values that it assumes."""
    counts = Counter(op.f for op in foreign.history.clients if op.type == INVOKE)
    for name in check_options.ignore:
        if counts[name]:
            yield f"{counts[name]:,} ops `{name}` are left out of account (--ignore)"
    if isinstance(model, (MultiRegister, Register)) and check_options.initial is None and foreign.start is not None:
        whose = "Knossos' files" if isinstance(model, MultiRegister) else "Porcupine's example"
        yield f"the registers begin with {foreign.start}, as in {whose} (--initial says otherwise)"


def why_no_model(history: History) -> str:
    """The reason why no model is implied, and the remedy."""
    if any(op.f == "send" for op in history.clients):
        options = " or ".join(f"--workload {name}" for name in _workloads_of_messages())
        return f"these are ops of messages; name their workload: {options}"
    if appends(history):
        return ELLE
    names = sorted({op.f for op in history.clients})
    shown = ", ".join(names[:8]) + (" and others" if len(names) > 8 else "")
    if names == ["txn"]:
        return f"no model is implied by txn; {_STEPS}"
    models = {name: model.fs for name, model in MODELS.items()} | {name: p.fs for name, p in CONVERGING.items()}
    fit = [name for name, fs in sorted(models.items()) if fs.issuperset(names)]
    every = frozenset().union(*models.values())
    others = sorted(
        set(names).difference(every),
        key=lambda name: (name.lower() not in _OF_QUEUES, _OF_MESSAGES.get(name.lower(), name) == name),
    )
    other = others[0] if others else None
    if other is not None:
        from difflib import get_close_matches

        from results.formats.records import plain_name

        plain = plain_name(other)
        if (meant := _OF_QUEUES.get(other.lower())) is not None:
            return f"no model has `{other}`; is it {_quoted(meant)}? (the ops are {shown})"
        of_messages = _OF_MESSAGES.get(other.lower())
        if of_messages is not None:
            return f"no model has `{other}`; is it {_quoted(of_messages)}, an op of messages? {_MESSAGES}"
        near = [plain] if plain in every else get_close_matches(other, every, 1)
        meant = f"; is it {_quoted(near[0])}?" if near else ""
        return f"no model has `{other}`{meant} (the ops are {shown}; --ignore {other} leaves it out)"
    if not fit:
        return f"no model has all of {shown}; docs/checking.md has the operations of each"
    return f"no model is implied by {shown}; name one with --model ({', '.join(fit)})"


def _quoted(name: str) -> str:
    return f"{with_article(name).replace(' ', ' `', 1)}`"


_OF_MESSAGES: Final = {
    **dict.fromkeys(("publish", "produce", "emit"), "send"),
    **dict.fromkeys(("receive", "fetch", "subscribe", "deliver", "get-message", "poll"), "poll"),
    "consume": "consume", "replica-read": "replica-read",
}  # fmt: skip
"""Names of operations of messages -> the ones that docs/histories.md has."""
_OF_QUEUES: Final = {"offer": "enqueue", "take": "dequeue"}
"""Names of operations of queues -> ours."""
_MESSAGES: Final = "docs/histories.md has their names and values"


def _workloads_of_messages() -> list[str]:
    """Workloads that have judges of messages."""
    from harness.parts import registry

    return [
        name
        for name, plugin in registry.loadable(registry.WORKLOADS).items()
        if plugin.cls.judges(frozenset(), identified=False) is not None
    ]


def _by_columns(
    history: OpenedHistory, shown: str, model: str | None, check_options: CheckOptions
) -> CheckReport | None:
    """Judges a long sealed history without an object for each op. None: it needs the ordinary way."""
    try:
        if (history.rows or 0) < MANY:
            return None
        with history.limited(check_options.memory):
            columns = history.columns()
        clock = DecisionTime()
        found = examine_columns(columns, model, check_options)
    except HistoryError:
        return None
    if found is None:
        return None
    result = found.result
    whole = CheckReport(
        shown, result.verdict, result.reason, found.model, found.ops, clock.ms, algorithms(result),
        implied=model is None,
    )  # fmt: skip
    if result.verdict == Verdict.VALID:
        orders = {key: tuple(r.witness or ()) for key, r in found.keys.items()} if check_options.witness else None
        return replace(whole, witness=orders)
    # A picture shows all that happened, and not only what contradicts itself.
    return None if check_options.pictures else _violations(whole, History(()), found.keys, check_options, None)


class Columns(NamedTuple):
    """A history that was judged from its columns. ops: events of clients."""

    model: str
    ops: int
    result: CheckResult
    keys: Mapping[str | None, LinearResult]


def examine_columns(table: pa.Table, model: str | None, check_options: CheckOptions) -> Columns | None:
    """Judges a sealed history by its columns; None if it must be judged op by op."""
    import pyarrow.compute as pc

    done = table["f"].filter(pc.greater_equal(table["process"], 0))
    names = set(done.unique().to_pylist()).difference(check_options.ignore)
    chosen = model or implied_by(names)
    if chosen not in MODELS or not names <= MODELS[chosen].fs:
        return None
    try:
        found = check_options.checker(chosen).examine_columns(table)
    except ValueError:
        return None
    return None if found is None or chosen is None else Columns(chosen, len(done), *found)


def _violations(
    found: CheckReport,
    history: History,
    keys: Mapping[str | None, LinearResult],
    check_options: CheckOptions,
    checker: Linearizable | None,
) -> CheckReport:
    bad = [(key, r) for key, r in keys.items() if r.verdict == Verdict.INVALID]
    key, first = bad[0]
    pages: list[str] = []
    if check_options.pictures and checker is not None:
        # Only here: see `_history`.
        from checkers.linearizability.evidence.picture import picture

        by_key = dict(calls_by_key(history, checker.model, check_options.ignore))
        faults = history.nemesis.calls
        pages = [picture(by_key[k], checker.model, r, f"{found.file}{_of(k)}", faults) for k, r in bad[:_PICTURES]]
    return replace(
        found,
        anomaly="nonlinearizable",
        key=key,
        failing_op=first.failing_op,
        core=tuple(first.core),
        core_starts_anywhere=first.core_starts_anywhere,
        states=tuple(first.states),
        pictures=pages,
    )


def algorithms(result: CheckResult) -> str:
    """The algorithm that decided the most keys; `+` if there were others."""
    counts: Mapping[str, int] = result.stats.get("algorithms", {})
    if not counts:
        return "none"
    most = max(counts, key=lambda name: counts[name])
    return most + "+" * (len(counts) > 1)


def _of(key: str | None) -> str:
    return "" if key is None else f", key {key}"
