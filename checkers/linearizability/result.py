# SPDX-License-Identifier: Apache-2.0
"""A verdict with its evidence, as users get it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from results.verdict import Verdict


@dataclass(frozen=True, slots=True)
class LinearResult:
    """A verdict with its evidence. Ops are named by the index of their invocation in the history.

    reason       one line, in plain words.
    failing_op   the op that cannot be placed: its return is the earliest moment that proves the violation, with every
                 algorithm. (If the search for it costs more than `Budget.explain`: the earliest that was found.) None
                 unless invalid.
    states       readable states that were possible just before that return; empty if not computed.
    core         acknowledged ops that contradict each other, whatever the outcome of the others, by invocation.
    core_is_minimal   none of them can be spared (otherwise the budget ended the search for a smaller core).
    core_starts_anywhere   they contradict each other in every state at the call of the first of them; ops that had
                 returned by then are over (`core`). Otherwise: whatever the outcome of all ops that are not in it.
    final_paths  (state, last op linearized or None) of some orders that were possible until then.
    witness      for `valid`: an order of ops that explains the history (replayed before it was believed). Else None.
    window       (from, to) in ns around the core, or None.
    checked      the number of ops that had returned where it stopped: all of them unless the verdict is `unknown`.
    work         steps spent (see `Budget`).
    """

    verdict: Verdict
    reason: str
    failing_op: int | None = None
    states: Sequence[str] = ()
    core: Sequence[int] = ()
    core_is_minimal: bool = False
    core_starts_anywhere: bool = False
    final_paths: Sequence[tuple[str, int | None]] = ()
    witness: Sequence[int] | None = None
    window: tuple[int, int] | None = None
    algorithm: str = "none"
    checked: int = 0
    work: int = 0
