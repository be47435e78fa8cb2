# SPDX-License-Identifier: Apache-2.0
"""A client program on a pipe, with real little processes; and the operations of each model, judged on good and on bad
objects.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from random import Random
from typing import Any

import pytest

import harness.generator as gen
from checkers.linearizability import MODELS, Linearizable
from checkers.run.client_programs import ClientPrograms
from checkers.run.stats import Stats
from harness.api import Completion
from harness.plan.plan import ClusterPlan, Plan, ServerPlan
from harness.run import virtual_time
from harness.run.interpreter import Interpreter
from infra.machines.api import SettingsError
from results.history import History
from results.op import FAIL, INFO, OK, Op
from results.record import RunRecord
from results.verdict import Verdict
from workloads.any_system.objects import OBJECTS, Object
from workloads.any_system.pipe import PipeClient
from workloads.any_system.workload import AnyWorkload

REGISTER = OBJECTS["register"]

ECHO = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    print(json.dumps({"type": "ok", "value": len(asked["key"])}))
    sys.stdout.flush()
"""


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a test in an event loop of its own."""

    @wraps(test)
    def run(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return run


def op(f: str, value: Any = None) -> Op:
    return Op(0, 0, 0, "invoke", f, "key", value)


def client(program: str, folder: Path, *, deadline_s: float = 10.0, of: Object = REGISTER) -> PipeClient:
    return PipeClient([sys.executable, "-c", program], {"NAME": "x"}, folder, "n2", deadline_s, of.value)


async def once(program: str, folder: Path, op: Op, **how: Any) -> Completion:
    """The completion of one op by a fresh program."""
    made = client(program, folder, **how)
    await made.open()
    try:
        return await made.invoke(op)
    finally:
        await made.close()


def answering(line: str) -> str:
    """A program that answers each line with this one."""
    return f"import sys\nfor _ in sys.stdin: print({line!r}, flush=True)"


@in_loop
async def test_one_line_in_one_line_out(tmp_path: Path) -> None:
    made = client(ECHO, tmp_path)
    await made.open()
    done = [await made.invoke(op("read")) for _ in range(3)]
    assert done == [Completion(OK, 3, None, {"node": "n2"})] * 3
    assert await made.invoke(op("write", 7)) == Completion(OK, 7, None, {"node": "n2"})  # a write has no result
    await made.close()
    assert made._process is not None
    assert made._process.returncode == 0  # it ended by itself when its stdin ended


@in_loop
async def test_the_program_sees_its_folder_its_environment_and_the_whole_request(tmp_path: Path) -> None:
    program = (
        "import json, os, sys\nasked = json.loads(sys.stdin.readline())\n"
        "ok = asked == {'op': 'cas', 'key': 'key', 'value': [1, 2]} and os.environ['NAME'] == 'x'\n"
        f"ok = ok and os.getcwd() == {str(tmp_path.resolve())!r}\n"
        "print(json.dumps({'type': 'fail', 'error': 'right' if ok else str(asked)}), flush=True)"
    )
    done = await once(program, tmp_path, op("cas", [1, 2]), of=OBJECTS["cas-register"])
    assert (done.type, done.error) == (FAIL, "right")


ACCIDENTS = {
    "garbled": {
        "hello": "is not JSON",
        "[1]": 'has no "type"',
        '{"type": "yes"}': 'has no "type"',
        '{"type": "ok"}': 'has no "value"; a whole number, or null is right for read',
        '{"type": "ok", "value": "3"}': "has a wrong value; a whole number, or null is right for read",
        '{"type": "ok", "value": true}': "has a wrong value",
    }
}


@pytest.mark.parametrize("line", ACCIDENTS["garbled"])
@in_loop
async def test_nonsense_is_an_op_of_unknown_outcome(line: str, tmp_path: Path) -> None:
    done = await once(answering(line), tmp_path, op("read"))
    assert (done.type, done.extra["accident"]) == (INFO, "garbled")
    assert ACCIDENTS["garbled"][line] in str(done.error)


@in_loop
async def test_a_line_without_an_end_is_nonsense(tmp_path: Path) -> None:
    done = await once("import sys\nsys.stdin.readline()\nprint('x' * (2 << 20), flush=True)", tmp_path, op("read"))
    assert (done.type, done.extra["accident"]) == (INFO, "garbled")


@in_loop
async def test_a_program_that_dies_is_named_with_its_last_words(tmp_path: Path) -> None:
    done = await once("import sys\nsys.stdin.readline()\nraise KeyError('leader')", tmp_path, op("write", 1))
    assert (done.type, done.extra["accident"]) == (INFO, "died")
    assert "exit code 1: KeyError: 'leader'" in str(done.error)
    done = await once("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", tmp_path, op("write", 1))
    assert "signal 9" in str(done.error)


@in_loop
async def test_a_silent_program_ends_with_all_that_it_started(tmp_path: Path) -> None:
    program = "import subprocess, sys\nprint('started', file=sys.stderr)\nsubprocess.run(['sleep', '1000'])"
    made = client(program, tmp_path, deadline_s=0.5)
    await made.open()
    done = await made.invoke(op("read"))
    assert (done.type, done.extra["accident"]) == (INFO, "silent")
    await made.close()
    assert made._process is not None
    assert made._process.returncode is not None


@in_loop
async def test_a_program_that_writes_much_on_stderr_is_not_blocked(tmp_path: Path) -> None:
    program = "import sys\nsys.stderr.write('x' * 3000000)\n" + answering('{"type": "info"}')
    done = await once(program, tmp_path, op("read"))
    assert (done.type, done.error) == (INFO, "the client gave no reason")


@in_loop
async def test_a_program_that_does_not_exist_has_sent_nothing(tmp_path: Path) -> None:
    made = PipeClient(["/no/such/program"], {}, tmp_path, "n1", 1.0, REGISTER.value)
    with pytest.raises(OSError):
        await made.open()
    await made.close()


def test_the_judge_counts_and_names_what_was_replaced() -> None:
    def event(index: int, type_: Any, **more: Any) -> Op:
        return Op(index, index, index // 2, type_, "read", "k", **more)

    lost = event(3, INFO, error="the client has ended: exit code 1: KeyError", extra={"accident": "died"})
    ops = [event(0, "invoke"), event(1, OK, value=1), event(2, "invoke"), lost]
    found = ClientPrograms().check(RunRecord(History(ops)))
    assert (found.verdict, found.stats) == (Verdict.VALID, {"died": 1})
    assert found.reason == f"1 replaced: 1 ended by themselves; the first: op 3: {lost.error}"
    assert "every program answered" in ClientPrograms().check(RunRecord(History(ops[:2]))).reason


class Thing:
    """A shared object of any model: what a right server would do, at one moment of the op."""

    def __init__(self, bug: str | None) -> None:
        self.bug = bug
        self.values: dict[str, Any] = {}
        self.old: dict[str, Any] = {}
        self.dice = Random(5)

    def apply(self, op: Op, process: int) -> tuple[Any, Any]:
        """The type of the completion, and its value."""
        assert op.key is not None
        key, held = op.key, self.values.get(op.key)
        broken = self.bug is not None and self.dice.random() < 0.05
        match op.f:
            case "read" if self.bug == "stale" and broken:
                return OK, self._seen(op, self.old.get(key))
            case "read":
                return OK, self._seen(op, held)
            case "write" if not (self.bug == "lost" and broken):
                self._set(key, op.value)
            case "cas":
                if held != op.value[0]:
                    return FAIL, None
                self._set(key, op.value[1])
            case "acquire":
                if held is not None and not (self.bug == "double" and broken):
                    return FAIL, None
                self._set(key, process)
            case "release":
                if held != process:
                    return FAIL, None
                self._set(key, None)
            case "enqueue" if not (self.bug == "lost" and broken):
                self._set(key, [*(held or ()), op.value])
            case "dequeue":
                if held and not (self.bug == "double" and broken):
                    self._set(key, held[1:])
                return OK, held[0] if held else None
            case "append":
                place = len(held or ())
                if not (self.bug == "lost" and broken):
                    self._set(key, [*(held or ()), op.value])
                return OK, place
            case "add" if not (self.bug == "lost" and broken):
                self._set(key, [*(held or ()), op.value])
        return OK, op.value

    def _set(self, key: str, value: Any) -> None:
        self.old[key], self.values[key] = self.values.get(key), value

    def _seen(self, op: Op, held: Any) -> Any:
        if op.value is not None:  # of a log
            return held[op.value] if held and op.value < len(held) else None
        return held


class Counting(Thing):
    """The elements that were added are one number."""

    def _seen(self, op: Op, held: Any) -> Any:
        return sum(held or ())


class Grown(Thing):
    """The elements that were added are a set."""

    def _seen(self, op: Op, held: Any) -> Any:
        return list(held or ())


class At:
    """A client of a thing. Its op takes effect at some moment between invocation and completion."""

    def __init__(self, thing: Thing) -> None:
        self.thing = thing

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def invoke(self, op: Op) -> Completion:
        await asyncio.sleep(self.thing.dice.random() * 0.02)
        kind, value = self.thing.apply(op, op.process)
        await asyncio.sleep(self.thing.dice.random() * 0.02)
        if self.thing.dice.random() < 0.01:
            return Completion(INFO, None, "no answer")
        return Completion(kind, value)


def history(model: str, bug: str | None, seed: int) -> History:
    """A run of the workload's own phases on a thing, in virtual time."""
    plan = Plan(workload="any", seed=seed, options={"model": model, "ops_per_key": 40})
    workload = AnyWorkload(plan)
    things = {"counter": Counting, "grow-only-set": Grown}
    thing = things.get(model, Thing)(bug)
    thing.dice = Random(seed)
    ops: list[Op] = []

    async def main() -> None:
        interpreter = Interpreter(concurrency=6, client=lambda thread: At(thing), journal=ops.append, deadline_s=4.0)
        await interpreter.run(gen.clients(gen.limit(400, workload.generator(plan.rng("load"), "main"))), "main")
        keys = list(dict.fromkeys(op.key for op in ops if op.key is not None))
        await interpreter.run(workload.final(keys, ["n1"]), "final")
        await interpreter.close()

    with asyncio.Runner(loop_factory=virtual_time.VirtualTimeLoop) as runner:
        runner.run(main())
    return History(ops)


def judged(model: str, bug: str | None, seed: int = 1) -> Verdict:
    run = RunRecord(history(model, bug, seed))
    assert Stats(list(OBJECTS[model].fs)).check(run).verdict == Verdict.VALID, "some kind of op never succeeded"
    return Linearizable(MODELS[model]()).check(run).verdict


@pytest.mark.parametrize("model", OBJECTS)
def test_a_right_object_is_valid(model: str) -> None:
    assert [judged(model, None, seed) for seed in (1, 2, 3)] == [Verdict.VALID] * 3


PLANTED = [
    ("register", "stale"),
    ("register", "lost"),
    ("cas-register", "stale"),
    ("cas-register", "lost"),
    ("mutex", "double"),
    ("fifo-queue", "lost"),
    ("fifo-queue", "double"),
    ("unordered-queue", "lost"),
    ("unordered-queue", "double"),
    ("log", "lost"),
    ("counter", "lost"),
    ("grow-only-set", "lost"),
]


@pytest.mark.parametrize(("model", "bug"), PLANTED)
def test_a_planted_bug_is_found(model: str, bug: str) -> None:
    assert judged(model, bug) == Verdict.INVALID


def test_every_model_of_the_option_has_its_operations() -> None:
    from typing import get_args, get_type_hints

    options = get_type_hints(AnyWorkload.Options)["model"]
    assert set(get_args(options)) == set(OBJECTS) <= set(MODELS)


def test_a_missing_client_is_reported_before_any_node_exists(tmp_path: Path) -> None:
    system = tmp_path / "s.toml"

    def workload() -> AnyWorkload:
        return AnyWorkload(
            Plan(workload="any", cluster=ClusterPlan(), server=ServerPlan(options={"system": str(system)}))
        )

    server = '[server]\nrun = ["x"]\nports = { client = 1 }\n'
    system.write_text(server)
    with pytest.raises(SettingsError, match=r"client: is missing; a table \[client\] is right"):
        workload().shares()
    system.write_text(f'{server}[client]\nrun = ["no-such-program"]')
    with pytest.raises(SettingsError, match="this machine has no program no-such-program"):
        workload().shares()
