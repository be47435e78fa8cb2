# SPDX-License-Identifier: Apache-2.0
"""The progress output of a run: one live line on a terminal, plain log lines elsewhere."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import TextIO

from harness import terminal
from results.op import Op

TERMINAL_S = 0.5
PLAIN_S = 10.0
_RATE_WINDOW_S = 5
_SHORTEST_FAULT = 5
"""Characters that the faults keep on a narrow terminal."""


class ProgressLine:
    """Counts ops as they complete and shows them. `faults` and `leader` are called when a line is drawn."""

    def __init__(
        self,
        now: Callable[[], int],
        faults: Callable[[], list[str]],
        leader: Callable[[], tuple[Sequence[str], int | None]],
        word: str = "leader",
        out: TextIO | None = sys.stdout,
    ) -> None:
        """`leader`: returns the leader of each group, and the first one's term; `word`: the name of a leader."""
        self._now, self._faults, self._leader, self._word, self._out = now, faults, leader, word, out
        self._terminal = out is not None and out.isatty()
        self.counts: Counter[str] = Counter()
        self._marks: deque[tuple[int, int]] = deque([(0, 0)])
        self._width = 0

    def on_event(self, op: Op) -> None:
        if op.is_client and op.type != "invoke":
            self.counts[op.type] += 1

    async def show(self) -> None:
        """Shows the line until cancelled, and then wipes it."""
        try:
            while True:
                await asyncio.sleep(TERMINAL_S if self._terminal else PLAIN_S)
                self.draw()
        finally:
            self.wipe()

    def draw(self) -> None:
        if self._terminal:
            columns = terminal.columns(self._out)
            line = self.line(columns)
            terminal.put("\r" + line.ljust(min(self._width, columns - 1) if columns else self._width), self._out)
            self._width = len(line)
        else:
            terminal.put(self.line() + "\n", self._out)

    def wipe(self) -> None:
        if self._terminal and self._width:
            terminal.put("\r" + " " * self._width + "\r", self._out)
            self._width = 0

    def line(self, columns: int | None = None) -> str:
        """` 01:12  |  231 op/s  ok 14902  fail 41  info 118  |  fault: hammer-time n4  |  leader n2, term 6`

        columns  the width of the terminal, which must not wrap the line: a carriage return would leave its first part
                 standing. If it is narrow, the gaps shrink and the faults are cut first, so that the leader stays
                 visible. None: the whole line.
        """
        now, total = self._now(), self.counts.total()
        self._marks.append((now, total))
        while len(self._marks) > 2 and now - self._marks[0][0] > _RATE_WINDOW_S * 1_000_000_000:
            self._marks.popleft()
        since, before = self._marks[0]
        rate = (total - before) / max(1e-9, (now - since) / 1e9)
        seconds = now // 1_000_000_000
        leaders, term = self._leader()
        number = f", {'term' if self._word == 'leader' else 'epoch'} {term}" if term is not None else ""
        who = f"{self._word} {' '.join(leaders)}{number}" if leaders else f"no {self._word}"
        fault = terminal.shown(", ".join(self._faults()) or "none")
        c = self.counts
        head = (
            f" {seconds // 60:02d}:{seconds % 60:02d}  |  {rate:.0f} op/s  ok {c['ok']}  fail {c['fail']}  "
            f"info {c['info']}  |  fault: "
        )
        tail = terminal.shown(f"  |  {who}")
        if columns is not None and len(head) + len(fault) + len(tail) >= columns:
            head, tail = head.replace("  ", " "), tail.replace("  ", " ")
            fault = terminal.fitted(fault, max(_SHORTEST_FAULT, columns - len(head) - len(tail)))
        return terminal.fitted(f"{head}{fault}{tail}", columns)
