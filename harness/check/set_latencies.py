# SPDX-License-Identifier: Apache-2.0
"""Times after which elements of a set were visible permanently, or lost: the figures of Jepsen's `set-full`.

Source: `jepsen.checker/set-full` (Jepsen 0.3). An element is *known* from the first answer that shows it: that of its
`add`, or of a read that has it. Of the reads that began after that, and were answered: it is *stable* if the last one
that lacks it began before the last one that has it, *lost* if it is the other way round, and else *never read*. Its
latency is the time from the moment at which it was known to the begin of the last read that lacks (lost: has) it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

from results.figures import quantile
from results.history import Call
from results.op import OK

_MS: Final = 1_000_000
_SHARES: Final = (0.0, 0.5, 0.95, 0.99, 1.0)


@dataclass
class SetLatencies:
    """Elements by what became of them; latencies in ns, those of stable and of lost elements.

    known: elements that some answer showed. stale: stable ones that a read lacked after they were known.
    """

    known: int = 0
    never_read: int = 0
    stable: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)

    @property
    def stale(self) -> int:
        return sum(latency > 0 for latency in self.stable)

    def rows(self) -> list[tuple[str, str]]:
        """Figures with their names, for a table."""
        found = [
            ("elements known", f"{self.known:,}"),
            ("stable", f"{len(self.stable):,}"),
            ("stable, but lacking in a read after they were known", f"{self.stale:,}"),
            ("lost", f"{len(self.lost):,}"),
            ("never read", f"{self.never_read:,}"),
        ]
        for word, latencies in (("stable", sorted(self.stable)), ("lost", sorted(self.lost))):
            if latencies:
                text = ", ".join(f"{share:g}: {quantile(latencies, share) / _MS:,.1f} ms" for share in _SHARES)
                found.append((f"{word} after (quantiles)", text))
        return found


def set_latencies(calls: Sequence[Call]) -> SetLatencies | None:
    """The figures of a history of `add` and `read` of one set; None for any other history.

    Takes time in proportion to the elements that reads have or lack, and memory in proportion to the elements.
    """
    if not calls or {call.invoke.f for call in calls} != {"add", "read"}:
        return None
    known = _known(calls)
    if known is None:
        return None
    # The last read that has each element, and the last of all reads: without a look at each pair of the two.
    reads = sorted((c for c in calls if c.invoke.f == "read" and c.outcome == OK), key=lambda c: c.start)
    present: dict[Hashable, int] = {}
    absent: dict[Hashable, int] = {}
    pending = sorted(known, key=lambda element: known[element])
    begun, live = 0, set[Hashable]()
    for read in reads:
        assert read.completion is not None
        here = set(read.completion.value)
        while begun < len(pending) and known[pending[begun]] < read.start:
            live.add(pending[begun])
            begun += 1
        for element in here:
            present[element] = read.start
        for element in live - here:
            absent[element] = read.start
    found = SetLatencies(len(known))
    for element, since in known.items():
        has, lacks = present.get(element), absent.get(element)
        if has is not None and (lacks is None or lacks < has):
            found.stable.append(0 if lacks is None else max(0, lacks + 1 - since))
        elif lacks is not None:
            found.lost.append(0 if has is None else max(0, has + 1 - since))
        else:
            found.never_read += 1
    return found


def _known(calls: Sequence[Call]) -> dict[Hashable, int] | None:
    """Element -> the time of the first answer that shows it. None if the values are no sets of one object."""
    known: dict[Hashable, int] = {}
    for call in calls:
        if call.invoke.key is not None:
            return None
        if call.outcome != OK or call.completion is None:
            continue
        value = call.invoke.value if call.invoke.f == "add" else call.completion.value
        elements = [value] if call.invoke.f == "add" else value
        if not isinstance(elements, list | tuple):
            return None
        for element in elements:
            if not isinstance(element, Hashable):
                return None
            assert call.end is not None
            known[element] = min(known.get(element, call.end), call.end)
    return known
