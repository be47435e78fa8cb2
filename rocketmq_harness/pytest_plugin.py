# SPDX-License-Identifier: Apache-2.0
"""The plug-in for pytest (docs/recording.md): the fixture `history`, and the marks that judge it.

    @pytest.mark.linearizable("register")
    def test_my_register(history):
        with history.op("write", value=1) as op:
            ...

pytest loads it in every project that has this package installed, so it imports nothing but pytest here.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from rocketmq_harness.recording import Recorder

MARKS: Final = {
    "linearizable": "linearizable(model, ignore=(), picture=True): the recorded history is linearizable",
    "message_log": 'message_log(workload="log", ignore=()): the recorded history of messages is valid',
}
"""Mark -> its line in `pytest --markers`."""

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


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """Judges the history after the test's own code: a violation is a failure of the test, not of a tear-down."""
    result = yield
    recorder = pyfuncitem.stash.get(_RECORDER, None)
    for mark in filter(None, map(pyfuncitem.get_closest_marker, MARKS)):
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
        judge(recorder, *mark.args, **mark.kwargs)
    except AssertionError as problem:
        violation = str(problem)
    if violation:  # behind the block: pytest would show the violation a second time, as the cause of the failure
        pytest.fail(violation, pytrace=False)
