# SPDX-License-Identifier: Apache-2.0
"""The plug-in for pytest (docs/recording.md): the fixture `history`, the marks that judge it, and a cluster.

    @pytest.mark.linearizable("register")
    def test_my_register(history):
        with history.op("write", value=1) as op:
            ...

pytest loads it in every project that has this package installed, so it imports nothing but pytest here.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from rocketmq_harness.clusters import RunningCluster
    from rocketmq_harness.recording import Recorder

MARKS: Final = {
    "linearizable": "linearizable(model, ignore=(), picture=True): the recorded history is linearizable",
    "message_log": 'message_log(workload="log", ignore=()): the recorded history of messages is valid',
    "nemesis": "nemesis(fault, target=None, first_s=1, every_s=20, for_s=10, options={}): strikes `rocketmq_cluster`",
}
"""Mark -> its line in `pytest --markers`."""

_JUDGES: Final = ("linearizable", "message_log")

_RECORDER: Final = pytest.StashKey["Recorder"]()
_PASSED: Final = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    for line in MARKS.values():
        config.addinivalue_line("markers", line)


@pytest.fixture
def history(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Recorder]:
    """A recorder of the test's operations. Its file, `history.jsonl` in `tmp_path`, is kept if the test fails.

    `@pytest.mark.linearizable(MODEL)` or `@pytest.mark.message_log` judges it behind the last line of the test.
    """
    # Imported here: see the module's text.
    from rocketmq_harness.recording import record

    with record(tmp_path / "history.jsonl") as recorder:
        request.node.stash[_RECORDER] = recorder
        yield recorder
    if request.node.stash.get(_PASSED, False):
        recorder.path.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def rocketmq_options() -> Mapping[str, Any]:
    """The arguments of `start_cluster` for `rocketmq_cluster`. Define a fixture of this name to change them."""
    return {}


@pytest.fixture(scope="session")
def rocketmq_cluster(request: pytest.FixtureRequest, rocketmq_options: Mapping[str, Any]) -> Iterator[RunningCluster]:
    """A cluster of RocketMQ for all tests of the session. The faults of all `nemesis` marks are prepared."""
    from rocketmq_harness.clusters import start_cluster

    marks = (mark for item in request.session.items for mark in item.iter_markers("nemesis"))
    faults = sorted({mark.args[0] for mark in marks if mark.args})
    with start_cluster(**{"faults": faults, **rocketmq_options}) as cluster:
        yield cluster


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """Lets the faults of its marks strike during the test's own code, and judges the history after it: a violation is
    a failure of the test, not of a tear-down.
    """
    recorder = pyfuncitem.stash.get(_RECORDER, None)
    with ExitStack() as strikes:
        for mark in pyfuncitem.iter_markers("nemesis"):
            cluster: Any = pyfuncitem.funcargs.get("rocketmq_cluster")
            if cluster is None:
                pytest.fail("the mark `nemesis` needs the fixture `rocketmq_cluster`", pytrace=False)
            strikes.enter_context(cluster.repeated(*mark.args, **mark.kwargs, recorder=recorder))
        result = yield
    for mark in filter(None, map(pyfuncitem.get_closest_marker, _JUDGES)):
        if recorder is None:
            pytest.fail(f"the mark `{mark.name}` needs the fixture `history`, or one that uses it", pytrace=False)
        _judge(recorder, mark)
    pyfuncitem.stash[_PASSED] = True
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the place of the history to the report of a test that failed by itself."""
    report = yield
    recorder = item.stash.get(_RECORDER, None)
    if recorder is not None and report.failed and str(recorder.path) not in report.longreprtext:
        report.sections.append(("history", f"history: {recorder.path}"))
    return report


def _judge(recorder: Recorder, mark: pytest.Mark) -> None:
    """Fails the test, without a traceback, if its history is not valid."""
    from rocketmq_harness.asserting import assert_linearizable, assert_log

    judge: Any = assert_linearizable if mark.name == "linearizable" else assert_log
    violation = ""
    try:
        inspect.signature(judge).bind(recorder, *mark.args, **mark.kwargs)
    except TypeError as problem:
        violation = f"the mark `{mark.name}`: {problem}"
    if violation:
        pytest.fail(violation, pytrace=False)
    try:
        judge(recorder, *mark.args, **mark.kwargs)
    except AssertionError as problem:
        violation = str(problem)
    except (TypeError, ValueError) as problem:
        if not _is_ours(problem):
            raise
        violation = f"the mark `{mark.name}`: {problem}"
    if violation:  # behind the block: pytest would show the violation a second time, as the cause of the failure
        pytest.fail(violation, pytrace=False)


def _is_ours(problem: BaseException) -> bool:
    """True for an error that this package raised, and not a model of the user."""
    last = traceback.extract_tb(problem.__traceback__)[-1]
    return Path(last.filename).is_relative_to(Path(__file__).parents[1]) and (last.line or "").startswith("raise ")
