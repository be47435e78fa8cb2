"""A verdict with its evidence, as users get it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from results.verdict import Verdict


@dataclass(frozen=True, slots=True)
class LinearResult:
    """A verdict with its evidence. Ops are named by the index of their invocation in the history.

    reason       one line, in plain words.
    failing_op   the op that cannot be placed: its return is the earliest moment that proves the violation, whichever
                 algorithm found it. (Where finding it costs more than `Budget.explain`: the earliest that was found.)
                 None unless invalid.
    states       states (for people) that were possible just before that return; empty where not worked out.
    core         acknowledged ops that contradict each other whatever became of the others, in order of invocation.
    core_is_minimal   none of them can be spared (otherwise the budget ended the search for less).
    core_starts_anywhere   they do so whatever the state was when the first of them was called; what had returned by
                 then is over (`core`). Otherwise: whatever became of all ops that are not in it.
    final_paths  (state, last op linearized or None) of some orders that were possible until then.
    witness      for `valid`: an order of ops that explains the history (replayed before it was believed). Else None.
    window       (from, to) in ns around the core, or None.
    checked      how far it got: ops that had returned by then. All of them unless the verdict is `unknown`.
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
