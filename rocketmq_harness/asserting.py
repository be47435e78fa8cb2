# SPDX-License-Identifier: Apache-2.0
"""Assertions on recorded histories, for tests (docs/recording.md): a failure shows the violation in a few lines.

Judges are loaded where they are used: a test that records and does not judge needs no numpy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rocketmq_harness.recording import Recorder

if TYPE_CHECKING:
    from checkers.linearizability import LinearResult, Model
    from results.history import Call, History

Recorded = Recorder | str | os.PathLike[str]
"""A recorder, open or closed, or the path of a history of any format."""

_OPTION: Final = re.compile(r"--ignore (\S+) leaves")
"""The option of the command in a message."""
_SHOWN: Final = 8
"""The largest number of operations, or of anomalies, that a failure lists."""


def assert_linearizable(
    recorded: Recorded, model: Model[Any] | str, *, ignore: Collection[str] = (), picture: bool = True
) -> None:
    """Raises AssertionError unless the history is linearizable. A history that is not decided fails, too.

    model    a name (docs/checking.md), or a model: `CasRegister(0)` for one that starts with 0.
    ignore   operations that are left out; others that the model does not have are a ValueError.
    picture  a violation is drawn as an HTML page beside the history.
    """
    __tracebackhide__ = True
    # The judges are loaded here, see above.
    from checkers.linearizability import Linearizable
    from checkers.linearizability.check import insist_on_names
    from checkers.linearizability.history.encode import first_unknown, unknown
    from results.verdict import Verdict

    insist_on_names(ignore)
    made, path = _model(model), _path(recorded)
    history = _read(path)
    other = first_unknown(history.clients, made, ignore)
    if other is not None:
        raise ValueError(f"{path}: {unknown(other, made)}; ignore={{{other.f!r}}} leaves it out")
    result, keys = Linearizable(made, ignore=ignore).examine(history)
    if result.verdict == Verdict.VALID:
        return
    bad = next(((key, one) for key, one in keys.items() if one.verdict == Verdict.INVALID), None)
    if bad is None:
        raise AssertionError(f"not decided as {made.name}: {result.reason}\n  history: {path}")
    key, first = bad
    calls = [call for call in history.by_key[key] if call.invoke.f in made.fs and call.invoke.f not in ignore]
    lines = [f"not linearizable as {made.name}: {result.reason}", *_core(calls, made, first), f"  history: {path}"]
    if picture:
        lines.append(f"  picture: {_drawn(path, key, calls, made, first, history.nemesis.calls)}")
    raise AssertionError("\n".join(lines))


def assert_log(recorded: Recorded, workload: str = "log", *, ignore: Collection[str] = ()) -> None:
    """Raises AssertionError unless the history of messages is valid: nothing is lost, duplicated, reordered, ...

    workload  `log`, or `queue`, which judges consumer groups, too (docs/histories.md).
    ignore    operations that are left out.

    Without final reads nothing proves that a message was kept: such a history is not decided, and fails.
    """
    __tracebackhide__ = True
    # The judges are loaded here, see above.
    from checkers.linearizability.check import insist_on_names
    from harness.check.examine import examine
    from harness.check.report import CheckOptions
    from results.verdict import Verdict

    insist_on_names(ignore)
    path = _path(recorded)
    found = examine(path, path.name, None, CheckOptions(workload=workload, ignore=tuple(ignore)))
    if found.verdict == Verdict.VALID:
        return
    what = "not valid" if found.verdict == Verdict.INVALID else "not decided"
    anomalies = [line.strip() for line in found.lines if line.lstrip().startswith("- ")]
    reason = _OPTION.sub(r"ignore={'\1'} leaves", found.reason)
    lines = [f"{what} as {workload}: {reason}", *(f"  {line}" for line in anomalies[:_SHOWN])]
    raise AssertionError("\n".join([*lines, f"  history: {path}"]))


def _path(recorded: Recorded) -> Path:
    return recorded.path if isinstance(recorded, Recorder) else Path(recorded)


def _model(model: Model[Any] | str) -> Model[Any]:
    from checkers.linearizability import MODELS, Model

    if isinstance(model, Model):
        return model
    if not isinstance(model, str):
        shown = f"the class {model.__name__}; an object of it" if isinstance(model, type) else f"{model!r}; a name"
        raise TypeError(f"the model is {shown} is right, such as 'register', or CasRegister(0)")
    if model not in MODELS:
        raise ValueError(f"no model {model!r}; there are {', '.join(sorted(MODELS))}")
    return MODELS[model]()


def _read(path: Path) -> History:
    """The history of a file. Raises AssertionError if it is empty, HistoryError if it cannot be read."""
    from results.formats import read_history

    # (A recorder that is open, or whose process was killed, has reserved zeros behind its last event.)
    with path.open("rb") as file:
        if file.read(1) in (b"", b"\0"):
            raise AssertionError(f"nothing was recorded\n  history: {path}")
    return read_history(path).history


def _core(calls: Sequence[Call], model: Model[Any], result: LinearResult) -> Iterator[str]:
    """Yields a line for each of the last operations that contradict each other."""
    failing = () if result.failing_op is None else (result.failing_op,)
    listed = sorted({*result.core, *failing})[-_SHOWN:]
    by_index = {call.invoke.index: call for call in calls}
    described = [(by_index[index], model.describe(model.kind(by_index[index]))) for index in listed]
    width = max(len(text) for _, text in described)
    for call, text in described:
        end = "no outcome" if call.end is None else f"{call.end / 1e6:.3f} ms"
        mark = "   <- cannot be placed" if call.invoke.index == result.failing_op else ""
        number, process = call.invoke.index, call.invoke.process
        yield f"  op {number:<4} process {process:<3} {text:<{width}}   {call.start / 1e6:.3f} to {end}{mark}"


def _drawn(
    path: Path, key: str | None, calls: Sequence[Call], model: Model[Any], result: LinearResult, faults: Sequence[Call]
) -> Path:
    """Draws a violation beside its history. The path of the picture."""
    from checkers.linearizability.evidence.picture import picture
    from results.durable import write_text

    place = path.with_suffix(".html")
    name = path.name if key is None else f"{path.name}, key {key}"
    write_text(place, picture(calls, model, result, name, faults), "the picture")
    return place
