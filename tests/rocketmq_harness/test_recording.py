# SPDX-License-Identifier: Apache-2.0
"""The recorder: each outcome, processes of threads and tasks, and the events of a process that is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from results.formats import read_history
from results.history import History
from rocketmq_harness import Recorder, record

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history.jsonl"


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def judged_form(path: Path) -> History:
    """The history, if its reader has nothing to say about it."""
    found = read_history(path)
    assert found.format == "jsonl"
    assert not found.notes
    return found.history


def outcomes(path: Path) -> list[tuple[int, str, Any]]:
    return [(event["process"], event["type"], event["value"]) for event in events(path)]


def test_each_outcome_is_two_events(path: Path) -> None:
    """Protects the form of the file: fields, order, and results."""
    with record(path) as recorder:
        with recorder.op("write", key="x", value=3, node="n1") as op:
            op.ok()
        with recorder.op("read", key="x") as op:
            op.ok([3, None], node="n2")
        with recorder.op("cas", key="x", value=[3, 4]) as op:
            op.fail("it held\n5")
    written = events(path)
    times = [event.pop("time") for event in written]
    assert times == sorted(times)
    assert written == [
        {"process": 0, "type": "invoke", "f": "write", "key": "x", "value": 3, "extra": {"node": "n1"}},
        {"process": 0, "type": "ok", "f": "write", "key": "x", "value": 3},
        {"process": 0, "type": "invoke", "f": "read", "key": "x", "value": None},
        {"process": 0, "type": "ok", "f": "read", "key": "x", "value": [3, None], "extra": {"node": "n2"}},
        {"process": 0, "type": "invoke", "f": "cas", "key": "x", "value": [3, 4]},
        {"process": 0, "type": "fail", "f": "cas", "key": "x", "value": [3, 4], "error": "it held 5"},
    ]
    assert len(judged_form(path).calls) == 3


@pytest.mark.parametrize("problem", [TimeoutError("timed\nout"), KeyboardInterrupt(), asyncio.CancelledError()])
def test_an_exception_is_an_unknown_outcome_and_goes_on(problem: BaseException, path: Path) -> None:
    """Protects users from a `fail` that is none: what raised may have happened."""
    with record(path) as recorder:
        with pytest.raises(type(problem)), recorder.op("write", value=1):
            raise problem
        with recorder.op("read") as op:
            op.ok(1)
    assert outcomes(path) == [(0, "invoke", 1), (0, "info", 1), (1, "invoke", None), (1, "ok", 1)]
    assert events(path)[1]["error"].split(":")[0] == type(problem).__name__
    judged_form(path)


def test_a_block_without_an_outcome_is_unknown(path: Path) -> None:
    """Protects the history of a client that returns early."""
    with record(path) as recorder:
        with recorder.op("write", value=1):
            pass
        with recorder.op("write", value=2) as op:
            op.info("the answer was cut")
    assert [kind for _, kind, _ in outcomes(path)] == ["invoke", "info", "invoke", "info"]
    assert [event["process"] for event in events(path)] == [0, 0, 1, 1]
    assert [event.get("error") for event in events(path)[1::2]] == ["no outcome was recorded", "the answer was cut"]


def test_an_outcome_is_recorded_once(path: Path) -> None:
    """Protects a known outcome from the exception of a later line."""
    with record(path) as recorder:
        with suppress(ZeroDivisionError), recorder.op("write", value=1) as op:
            op.ok()
            raise ZeroDivisionError
        with recorder.op("write", value=2) as op:
            op.ok()
            with pytest.raises(ValueError, match="has an outcome already"):
                op.fail()
            assert not op.open
        with pytest.raises(ValueError, match="was not begun"):
            recorder.op("write").ok()
        with pytest.raises(ValueError, match="begun twice"), op:
            pass
    assert [kind for _, kind, _ in outcomes(path)] == ["invoke", "ok", "invoke", "ok"]


def test_each_thread_is_a_process(path: Path) -> None:
    """Protects the pairs of a history that many threads write: its reader refuses wrong ones."""
    with record(path) as recorder:
        together = threading.Barrier(8)

        def work(number: int) -> None:
            together.wait()
            for i in range(500):
                with recorder.op("write", key=f"k{number}", value=i) as op:
                    op.ok()

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
    history = judged_form(path)
    assert len(history.calls) == 4000
    by_key = {key: {call.invoke.process for call in calls} for key, calls in history.by_key.items()}
    assert sorted(process for found in by_key.values() for process in found) == list(range(8))


def test_each_task_is_a_process_and_a_time_out_is_unknown(path: Path) -> None:
    """Protects concurrent tasks of one thread from sharing a process."""

    async def client(recorder: Recorder, number: int) -> None:
        for i in range(3):
            with recorder.op("write", value=10 * number + i) as op:
                await asyncio.sleep(0)
                op.ok()

    async def hangs(recorder: Recorder) -> None:
        with pytest.raises(TimeoutError), recorder.op("read"):
            await asyncio.wait_for(asyncio.sleep(60), 0.01)
        with recorder.op("read") as op:
            op.ok(1)

    async def main() -> None:
        with record(path) as recorder:
            await asyncio.gather(*(client(recorder, number) for number in range(5)), hangs(recorder))

    asyncio.run(main())
    history = judged_form(path)
    writers: dict[int, set[int]] = {}
    for call in history.calls:
        if call.invoke.f == "write":
            writers.setdefault(call.invoke.process, set()).add(call.invoke.value // 10)
    assert sorted(map(len, writers.values())) == [1] * 5
    reads = [call for call in history.calls if call.invoke.f == "read"]
    assert [call.outcome for call in reads] == ["info", "ok"]
    assert reads[0].invoke.process != reads[1].invoke.process


def test_an_inner_operation_has_a_process_of_its_own(path: Path) -> None:
    """Protects a history from two open operations of one process (a callback, or trio's tasks in one thread)."""
    with record(path) as recorder:
        for _ in range(2):
            with recorder.op("write", value=1) as outer:
                with recorder.op("read") as inner:
                    inner.ok(1)
                outer.ok()
    assert [event["process"] for event in events(path)] == [0, 1, 1, 0] * 2
    judged_form(path)


def test_a_process_can_be_named(path: Path) -> None:
    """Protects clients that several threads use: a consumer's position belongs to the client."""
    with record(path) as recorder:
        for name in ("a", "b", "a"):
            with recorder.op("poll", process=name) as op:
                op.ok([])
        with pytest.raises(OSError, match="gone"), recorder.op("poll", process="a"):
            raise OSError("gone")
        with recorder.op("poll", process="a") as op:
            op.ok([])
    assert [event["process"] for event in events(path)[::2]] == [0, 1, 0, 0, 2]


@pytest.mark.parametrize("f", ["read", "get", "dequeue", "poll"])
def test_an_operation_that_shows_something_needs_a_result(f: str, path: Path) -> None:
    """Protects from a read that is recorded as one that found nothing, because its result was forgotten."""
    with record(path) as recorder:
        with pytest.raises(ValueError, match="`ok`: it needs a result, such as"), recorder.op(f, key="x") as op:
            op.ok()
        with recorder.op(f, key="x") as op:
            op.ok(None)
    assert [event["type"] for event in map(json.loads, path.read_text().splitlines())] == [
        "invoke",
        "info",
        "invoke",
        "ok",
    ]


def test_what_is_no_json_is_refused(path: Path) -> None:
    """Protects the file from a value that nobody can read, and the outcome from a result that was not recorded."""
    with record(path) as recorder:
        with pytest.raises(ValueError, match=r"the operation 'write' cannot be recorded: .*bytes"):
            recorder.op("write", value=b"x")
        with pytest.raises(ValueError, match="JSON compliant"):
            recorder.op("write", value=float("nan"))
        with pytest.raises(ValueError, match="a result cannot be recorded"), recorder.op("read") as op:
            op.ok(object())
    assert [kind for _, kind, _ in outcomes(path)] == ["invoke", "info"]


def test_text_of_any_kind_is_one_line(path: Path) -> None:
    """Protects the lines of the file from values with newlines, quotes and lone surrogates."""
    values = ["a\nb", '"', "中文", "\ud800", {"a": [1, None, True]}]
    with record(path) as recorder:
        for value in values:
            with recorder.op("write", key=value if isinstance(value, str) else None, value=value) as op:
                op.ok()
    assert [event["value"] for event in events(path)[1::2]] == values


def test_events_after_the_end(path: Path) -> None:
    """Protects a closed history: a late completion leaves its outcome unknown, and nothing new begins."""
    recorder = record(path)
    with recorder.op("write", value=1) as op:
        recorder.close()
        recorder.close()
        op.ok()
    with pytest.raises(ValueError, match=r"history\.jsonl was closed"), recorder.op("write", value=2):
        pytest.fail("it began")
    assert outcomes(path) == [(0, "invoke", 1)]
    assert [call.outcome for call in judged_form(path).calls] == ["info"]


def test_faults_are_events_of_the_nemesis(path: Path) -> None:
    """Protects the bands of the picture: faults may overlap, and each has its begin and its end."""
    with record(path) as recorder, recorder.fault("kill", "n1"), recorder.fault("pause"):
        pass
    names = [call.invoke.f for call in judged_form(path).nemesis.calls]
    assert names == ["start-kill", "start-pause", "stop-pause", "stop-kill"]
    assert all(call.completion is not None for call in judged_form(path).nemesis.calls)


def test_a_file_is_replaced_and_nothing_else_is(path: Path, tmp_path: Path) -> None:
    """Protects a folder, a device or the target of a link that has the name of the history."""
    for value in (1, 2):
        with record(path) as recorder, recorder.op("write", value=value) as op:
            op.ok()
    assert outcomes(path)[0] == (0, "invoke", 2)
    linked = tmp_path / "link"
    linked.symlink_to(path)
    for other in (tmp_path, linked, Path(os.devnull)):
        with pytest.raises(OSError, match="no regular file"):
            record(other)
    assert len(events(path)) == 2


def test_a_file_grows_with_its_events(path: Path) -> None:
    """Protects events behind the first bytes that were reserved, also one that is larger than a step."""
    large = "x" * 700_000
    with record(path) as recorder:
        for i in range(3000):
            with recorder.op("write", value=i if i != 1000 else large) as op:
                op.ok()
    assert [event["value"] for event in events(path)[1::2]] == [i if i != 1000 else large for i in range(3000)]
    assert path.read_bytes().endswith(b"}\n")


KILLED = """
import os, signal, sys
from rocketmq_harness import record
recorder = record(sys.argv[1])
for i in range(1000):
    with recorder.op("write", value=i) as op:
        if i == 999:
            os.kill(os.getpid(), signal.SIGKILL)
        op.ok()
"""


def test_a_killed_process_loses_no_event(path: Path) -> None:
    """Protects the evidence of a crash: everything that happened before `kill -9` is in the file, and readable."""
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    found = read_history(path)
    assert [call.invoke.value for call in found.history.calls] == list(range(1000))
    assert [call.outcome for call in found.history.calls] == ["ok"] * 999 + ["info"]
    (note,) = found.notes
    assert "torn" in note


def test_a_history_that_is_being_recorded_can_be_read(path: Path) -> None:
    """Protects an assertion in the middle of a test."""
    with record(path) as recorder:
        with recorder.op("write", value=1) as op:
            op.ok()
        assert len(read_history(path).history.calls) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_does_not_write(path: Path) -> None:
    """Protects the parent's events: two processes would write to the same place of the file."""
    with record(path) as recorder:
        child = os.fork()
        if not child:
            try:
                with recorder.op("write", value="child") as op:
                    op.ok()
            except ValueError as problem:
                os._exit(7 if "parent process" in str(problem) else 1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        with recorder.op("write", value="parent") as op:
            op.ok()
    assert outcomes(path) == [(0, "invoke", "parent"), (0, "ok", "parent")]


def loaded(code: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_recording_loads_only_modules_of_python(tmp_path: Path) -> None:
    """Protects the start of a user's program: no numpy, and no judge, for a file that it only writes."""
    code = f"""
import sys
before = set(sys.modules)
from rocketmq_harness import record
with record({str(tmp_path / "h.jsonl")!r}) as recorder, recorder.op("write", value=1) as op:
    op.ok()
print(*sorted(set(sys.modules) - before))
"""
    found = loaded(code)
    assert not found - set(sys.stdlib_module_names) - {"rocketmq_harness"}
    assert "asyncio" not in found


@pytest.fixture(autouse=True)
def _no_recorder_stays_open() -> Iterator[None]:
    yield
    from rocketmq_harness import recording

    assert all(recorder._closed for recorder in recording._RECORDERS)
