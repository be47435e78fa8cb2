# SPDX-License-Identifier: Apache-2.0
"""The context of a generator call: the time, and the free threads.

Threads are `0 .. concurrency-1`, plus one for the nemesis. A *process* is the logical client that runs on a thread.
Thread `i` starts as process `i`. After process `p` crashed, the thread runs process `p + concurrency`. So `process %
concurrency` is always the thread. (Jepsen's `generator/context.clj`.)

A set of threads is an integer: bit `i` is thread `i` and bit `concurrency` is the nemesis. Restricting a context to
some threads, or finding a free one among a thousand, takes a fraction of a microsecond. The value is immutable.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from results.op import NEMESIS


class ProcessMap(NamedTuple):
    """Thread -> process. A new value after every crash; contexts share it in between.

    clients, nemesis  sets of threads; `nemesis` is 0 if the run has none.
    processes         thread -> process; the last one is the nemesis thread's.
    """

    concurrency: int
    clients: int
    nemesis: int
    processes: tuple[int, ...]

    @staticmethod
    def of(concurrency: int, *, nemesis: bool) -> ProcessMap:
        """The map at the start of a run: process `i` on thread `i`."""
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}; a run needs at least 1 client thread")
        bit = 1 << concurrency
        return ProcessMap(concurrency, bit - 1, bit if nemesis else 0, (*range(concurrency), NEMESIS))

    def next_process(self, thread: int) -> ProcessMap:
        """The map after the process on a client's `thread` crashed."""
        processes = list(self.processes)
        processes[thread] += self.concurrency
        return self._replace(processes=tuple(processes))

    def thread_of(self, process: int) -> int:
        """The thread on which a process runs, or ran."""
        return self.concurrency if process == NEMESIS else process % self.concurrency


class Context(NamedTuple):
    """A moment of a run, as a generator sees it.

    time     ns since the start of the run.
    free     threads that wait for an op, as a set.
    threads  threads this generator may use, as a set (`narrowed` by combinators such as `clients`).
    turn     number of ops invoked so far; `pick` starts there, so that all threads get their turn.
    """

    time: int
    free: int
    threads: int
    turn: int
    process_map: ProcessMap

    @staticmethod
    def start(concurrency: int, *, nemesis: bool = True) -> Context:
        """A run's first moment: all threads free."""
        process_map = ProcessMap.of(concurrency, nemesis=nemesis)
        everyone = process_map.clients | process_map.nemesis
        return Context(0, everyone, everyone, 0, process_map)

    def narrowed(self, threads: int) -> Context:
        """The same moment for a generator that may use only `threads`."""
        return Context(self.time, self.free & threads, self.threads & threads, self.turn, self.process_map)

    @property
    def takers(self) -> int:
        """Threads that an op without a process may go to: the clients'; the nemesis's only if it is alone."""
        return self.threads & self.process_map.clients or self.threads

    @property
    def free_takers(self) -> int:
        """The free ones of `takers`."""
        return self.free & (self.threads & self.process_map.clients or self.threads)

    def pick(self) -> int:
        """A free thread of `takers`, each in its turn. There must be one."""
        return next_thread(self.free_takers, self.turn % self.process_map.concurrency)

    def process(self, thread: int) -> int:
        """The process that runs on a thread now."""
        return self.process_map.processes[thread]

    def is_free(self, process: int) -> bool:
        """True if this process is the one on its thread now, and waits for an op."""
        return self.runs(process) and bool(self.free >> self.process_map.thread_of(process) & 1)

    def runs(self, process: int) -> bool:
        """True if this process is alive and its thread is in `threads`."""
        process_map = self.process_map
        thread = process_map.concurrency if process == NEMESIS else process % process_map.concurrency
        return bool(self.threads >> thread & 1) and process_map.processes[thread] == process

    def bit(self, process: int) -> int:
        """The set of threads that holds just this process's thread."""
        return 1 << self.process_map.thread_of(process)


def next_thread(threads: int, start: int) -> int:
    """The first thread of a set (not empty) at or after `start`, going round."""
    later = threads >> start
    if later:
        return start + (later & -later).bit_length() - 1
    return (threads & -threads).bit_length() - 1


def members(threads: int, start: int = 0) -> Iterator[int]:
    """The threads of a set, from `start` on, going round."""
    later = threads >> start << start
    for part in (later, threads ^ later):
        left = part
        while left:
            low = left & -left
            yield low.bit_length() - 1
            left ^= low
