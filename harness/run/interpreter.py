# SPDX-License-Identifier: Apache-2.0
"""The interpreter: lets processes execute the ops of a generator and records every event.

One scheduler in one asyncio loop decides, timestamps, indexes and journals. The order of the journal is therefore the
order in which the events became known. Each client thread has a `WorkerSlot` with a task that lives as long as its
process; no task is created per op. A client may use its time freely, within three limits:

* An op has a deadline. When it passes, the op completes as `info`, even if its client ignores the cancellation. Such a
  client is abandoned.
* A process is never used again after an `info`, because its request may still be running. Its thread continues with a
  new process and a new client. The old client is closed in the background, with a deadline.
* The end of a phase waits for open ops, at most until their deadlines.

Completions are recorded before the generator is called for new ops. If they were recorded later, ops would look
concurrent that were not, and violations would be hidden from the checkers.

The clock is that of the loop, so everything here also runs in virtual time (`harness.run.virtual_time`). On an ordinary
loop, timers have a resolution of 1 ms. `extra["scheduled"]` is the time at which an op was due, `time` the time at
which it started.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from harness.api import Client, Completion
from harness.generator import EMPTY, GeneratorError, Pending, Source, as_generator
from harness.run.scheduler import MAIN, OpScheduler
from results.op import FAIL, INFO, NEMESIS, OK, Op

_log = logging.getLogger("harness.run")

BATCH: Final = 16
"""Ops that are started before the loop gets its turn: few, so that the first of them really starts when it was
stamped (within a third of a millisecond), many enough to share the price of a turn."""

CLOSE_DEADLINE_S: Final = 2.0
"""The time that a client may take to close before it is left behind."""


class Nemesis(Protocol):
    """The process that injects faults. It executes one op at a time, keeps its number, and goes on after an `info`."""

    async def invoke(self, op: Op) -> Completion: ...


class WorkerSlot:
    """The slot of a thread; `worker` is its present process.

    op     the open op, or None.
    ready  whether `client` was opened, so that an op may have been sent.
    inbox  the queue in which the worker waits for its next op.
    """

    __slots__ = ("client", "inbox", "op", "ready", "thread", "worker")

    def __init__(self, thread: int) -> None:
        self.thread = thread
        self.op: Op | None = None
        self.client: Client | None = None
        self.ready = False
        self.inbox: asyncio.Future[Op] | None = None
        self.worker: asyncio.Task[None] | None = None


class Interpreter:
    """Runs generators, phase after phase, in the event loop that runs when it is made; time 0 is that moment.

    concurrency          number of client threads.
    client               thread -> a fresh client, for each new process of that thread.
    nemesis              takes the ops on the nemesis's thread; None: no such thread.
    journal              is given every event before anything else happens: an invocation before it is sent. If it
                         raises, nothing more is ever invoked and `run` raises the same, now and later.
    deadline_s           for each op of a client, opening its client included.
    nemesis_deadline_s   for each op of the nemesis.
    on_event             is given every event after the journal (for the live line); the same if it raises.
    """

    def __init__(
        self,
        *,
        concurrency: int,
        client: Callable[[int], Client],
        nemesis: Nemesis | None = None,
        journal: Callable[[Op], None],
        deadline_s: float,
        nemesis_deadline_s: float = 120.0,
        on_event: Callable[[Op], None] | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._origin = self._loop.time()
        self._floor = 0
        self._client = client
        self._nemesis = nemesis
        self._journal = journal
        self._on_event = on_event
        self._deadline = round(deadline_s * 1e9)
        self._nemesis_deadline = round(nemesis_deadline_s * 1e9)
        self._scheduler = OpScheduler(concurrency, nemesis=nemesis is not None)
        self._slots = [WorkerSlot(thread) for thread in range(concurrency + 1)]
        self._done: deque[tuple[int, WorkerSlot, Op, Completion]] = deque()
        self._events: deque[tuple[str, Any]] = deque()
        # All clients' ops have the same deadline, so these are in order of time; the same for the nemesis's.
        self._expiries: tuple[deque[tuple[int, WorkerSlot, Op]], ...] = (deque(), deque())
        self._background: set[asyncio.Task[None]] = set()
        self._wake: asyncio.Future[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0
        self._stop_at: int | None = None
        self._running = False
        self._broken: Exception | None = None

    def now(self) -> int:
        """ns since the start of the run; never less than a timer that has gone off."""
        measured = round((self._loop.time() - self._origin) * 1e9)
        return measured if measured > self._floor else self._floor

    @property
    def stopped(self) -> bool:
        """True if `stop` was called."""
        return self._stop_at is not None

    def stop(self, grace_s: float = 0.0) -> None:
        """Invokes nothing more, in this phase and all later ones. Open ops may complete within `grace_s`; after that
        they are `info`. Call it in the loop's thread (a signal handler of the loop is).
        """
        if self._stop_at is None:
            self._stop_at = self.now() + round(grace_s * 1e9)
            self._wake_up()

    def event(self, f: str, value: Any) -> None:
        """Records an event that no process invoked (`results.op.Op.is_event`), stamped at the time of recording: at
        once while a phase runs, else at the start of the next, or at the end. Call it in the loop's thread.
        """
        self._events.append((f, value))
        self._wake_up()

    async def run(self, generator: Source, phase: str = MAIN) -> None:
        """Executes all ops of `generator`, and waits for those still open. Returns at once after `stop`.

        Invocations have `extra["phase"]` unless it is `main`. Raises what the journal, `on_event` or the generator
        raised (GeneratorError for a generator that breaks its contract); open ops are `info` then.
        """
        if self._running:
            raise RuntimeError("a phase is running already; await it before the next")
        if self._broken is not None:
            raise self._broken
        self._running = True
        try:
            self._scheduler.begin(as_generator(generator), phase)
            await self._run()
        except BaseException as problem:
            self._break_off(problem)
            raise
        finally:
            self._running = False

    async def _run(self) -> None:
        scheduler = self._scheduler
        ended = False
        while True:
            self._drain()
            answer: Op | Pending | None = None
            if self._stop_at is not None:
                ended = True
                if self.now() >= self._stop_at:
                    self._give_up_all("the run was stopped")
            if not ended:
                for _ in range(BATCH):
                    answer = scheduler.ask(self.now())
                    if not isinstance(answer, Op):
                        break
                    self._invoke(answer)
                else:
                    await asyncio.sleep(0)
                    continue
            ended = ended or answer is None
            if scheduler.idle and not self._done:
                if ended:
                    return
                if isinstance(answer, Pending) and answer.until is None:
                    raise GeneratorError(
                        "the generator is pending without a time and no op is open: it would wait for ever"
                    )
            await self._wait(answer.until if isinstance(answer, Pending) else None)

    def _invoke(self, op: Op) -> None:
        if op.process == NEMESIS:
            slot = self._slots[-1]
            self._expiries[1].append((op.time + self._nemesis_deadline, slot, op))
        else:
            slot = self._slots[self._scheduler.process_map.thread_of(op.process)]
            self._expiries[0].append((op.time + self._deadline, slot, op))
        slot.op = op
        self._note(op)
        inbox = slot.inbox
        if inbox is not None and not inbox.done():
            inbox.set_result(op)
        else:
            slot.worker = self._loop.create_task(self._serve(slot, op))

    def _note(self, op: Op) -> None:
        """Records an event, then notifies the listeners and the generator, before any reaction to it."""
        self._write(op)
        self._scheduler.tell(op)

    def _write(self, op: Op) -> None:
        try:
            self._journal(op)
            if self._on_event is not None:
                self._on_event(op)
        except Exception as problem:
            self._broken = problem
            raise

    async def _serve(self, slot: WorkerSlot, op: Op) -> None:
        """Executes the ops of a process, one after the other, until it ends with an `info` or is given up."""
        while True:
            try:
                if op.process == NEMESIS:
                    assert self._nemesis is not None
                    completion = _checked(await self._nemesis.invoke(op))
                elif slot.ready or (problem := await self._open(slot, op)) is None:
                    assert slot.client is not None
                    completion = _checked(await slot.client.invoke(op))
                else:
                    completion = Completion(FAIL, op.value, f"no-client: {problem}")
            except asyncio.CancelledError:
                # Given up on (then no one looks at what we report), or all tasks are being cancelled.
                self._report(slot, op, Completion(INFO, op.value, "cancelled"))
                raise
            except Exception as problem:
                completion = Completion(INFO, op.value, _describe(problem))
            if not self._report(slot, op, completion) or (op.process != NEMESIS and _ends(completion)):
                return
            slot.inbox = self._loop.create_future()
            op = await slot.inbox

    async def _open(self, slot: WorkerSlot, op: Op) -> str | None:
        """Makes and opens the slot's client. Returns None, or the reason why that failed."""
        client = None
        try:
            client = self._client(slot.thread)
            slot.client = client
            await client.open()
        except Exception as problem:
            if client is not None:
                self._spawn(self._retire(None, client))
            if slot.op is op:
                slot.client = None
            return _describe(problem)
        if slot.op is not op:
            # Given up and recorded as failed while the client opened: it must not be sent now.
            raise asyncio.CancelledError
        slot.ready = True
        return None

    def _report(self, slot: WorkerSlot, op: Op, completion: Completion) -> bool:
        """Takes the completion of a worker's op. False if it was given up before, so that the worker must end."""
        if slot.op is not op:
            return False
        self._done.append((self.now(), slot, op, completion))
        self._wake_up()
        return True

    def _drain(self) -> None:
        """Records all completions, then all deadlines that have passed."""
        done = self._done
        while done:
            time, slot, op, completion = done.popleft()
            if slot.op is op:
                self._complete(slot, op, completion, time)
        while self._events:
            self._note(self._scheduler.event(self.now(), *self._events.popleft()))
        now = self.now()
        for expiries in self._expiries:
            while expiries and (expiries[0][0] <= now or expiries[0][1].op is not expiries[0][2]):
                _, slot, op = expiries.popleft()
                if slot.op is op:
                    limit = self._nemesis_deadline if op.process == NEMESIS else self._deadline
                    self._give_up(slot, op, f"no answer within {limit / 1e9:g} s")

    def _complete(self, slot: WorkerSlot, op: Op, completion: Completion, time: int) -> None:
        slot.op = None
        ends = _ends(completion)
        event = self._scheduler.complete(
            op, time, completion.type, completion.value, completion.error, completion.extra, ends=ends
        )
        if ends and op.process != NEMESIS:
            self._release(slot)
        self._note(event)

    def _give_up(self, slot: WorkerSlot, op: Op, why: str) -> None:
        """Completes an open op in place of its worker, and leaves the worker behind.

        The type is `info`. If its client was not even open, nothing was sent, nor will be (`_open`): that is a `fail`.
        """
        unsent = op.process != NEMESIS and not slot.ready
        completion = Completion(FAIL if unsent else INFO, op.value, f"no-client: {why}" if unsent else why)
        self._release(slot)
        self._complete(slot, op, completion, self.now())

    def _give_up_all(self, why: str) -> None:
        for slot in self._slots:
            if slot.op is not None:
                self._give_up(slot, slot.op, why)

    def _break_off(self, problem: BaseException) -> None:
        """Completes open ops as `info` after an error, as far as they can still be recorded."""
        self._scheduler.begin(EMPTY, MAIN)
        try:
            if self._broken is None:
                self._drain()
                self._give_up_all(f"the run failed: {_describe(problem)}")
        except Exception as another:
            _log.warning("while the run failed: %s", _describe(another))
        for slot in self._slots:
            slot.op = None
            self._release(slot)

    def _release(self, slot: WorkerSlot) -> None:
        """Removes the process from its slot; its task and its client are closed in the background."""
        worker, client = slot.worker, slot.client
        slot.worker, slot.client, slot.inbox, slot.ready = None, None, None, False
        if worker is not None or client is not None:
            self._spawn(self._retire(worker, client))

    async def _retire(self, worker: asyncio.Task[None] | None, client: Client | None) -> None:
        """Ends a worker and closes its client; both waits have a deadline."""
        if worker is not None and not worker.done():
            worker.cancel()
            await self._end(worker)
        if client is not None:
            await self._end(self._loop.create_task(client.close()))

    async def _end(self, task: asyncio.Task[None]) -> None:
        """Waits for a task as long as a client may take to close, then leaves it behind."""
        await asyncio.wait({task}, timeout=CLOSE_DEADLINE_S)
        if not task.done():
            task.cancel()
            # One more turn: most end on being cancelled.
            await asyncio.wait({task}, timeout=0.01)
        if not task.done():
            _forget(task)
        elif not task.cancelled() and (problem := task.exception()) is not None:
            _log.debug("closing a client: %s", _describe(problem))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _wake_up(self) -> None:
        wake = self._wake
        if wake is not None and not wake.done():
            wake.set_result(None)

    async def _wait(self, until: int | None) -> None:
        """Waits until something completes or is to be recorded, `stop` is called, or the first of `until` and all
        deadlines has come.
        """
        if self._done or self._events:
            return
        moments = [expiries[0][0] for expiries in self._expiries if expiries]
        if until is not None:
            moments.append(until)
        if self._stop_at is not None:
            moments.append(self._stop_at)
        if moments:
            self._set_alarm(min(moments))
        self._wake = self._loop.create_future()
        try:
            await self._wake
        finally:
            self._wake = None

    def _set_alarm(self, at: int) -> None:
        """Sets the alarm to `at` or earlier: an earlier alarm stays, since a needless wake-up costs less than a new
        timer for every wait.
        """
        if self._alarm is not None:
            if self._alarm_at <= at:
                return
            self._alarm.cancel()
        self._alarm_at = at
        self._alarm = self._loop.call_at(self._origin + at / 1e9, self._ring)

    def _ring(self) -> None:
        # The loop's clock counts in floats: without the floor, rounding could make it just not be time yet, for ever.
        self._floor = max(self._floor, self._alarm_at)
        self._alarm = None
        self._wake_up()

    async def close(self) -> None:
        """Closes all clients, and waits for each at most until its deadline. No phase may run after this."""
        if self._broken is None:
            self._drain()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        for slot in self._slots:
            slot.op = None
            self._release(slot)
        while self._background:
            await asyncio.wait(set(self._background))


def _ends(completion: Completion) -> bool:
    """True if a client's process ends with this: an `info`, or at the client's request (`extra["end-process"]`)."""
    return completion.type == INFO or bool(completion.extra and completion.extra.get("end-process"))


def _checked(completion: object) -> Completion:
    """Returns a client's answer, or `info` with the fault in it."""
    if not isinstance(completion, Completion):
        return Completion(INFO, error=f"the client returned {completion!r}, which is not a Completion")
    if completion.type not in (OK, FAIL, INFO):
        return Completion(INFO, error=f"the client returned the type {completion.type!r}; ok, fail or info is right")
    return completion


def _describe(problem: BaseException) -> str:
    """An exception in one line."""
    text = " ".join(str(problem).split())
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__


def _forget(task: asyncio.Task[None]) -> None:
    """Leaves behind a task that ignores its cancellation.

    `asyncio.run` waits at its end for every task it knows, for ever if need be; so it must not know this one
    (`_unregister_task` is documented for those who extend asyncio).
    """
    _log.warning("a client ignored its cancellation and was abandoned")
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    asyncio._unregister_task(task)
