# SPDX-License-Identifier: Apache-2.0
"""Objects of which nodes may have different states for a while, but agree once all additions are over and all faults
are healed: sets to which elements are added, and counters to which numbers are added (G-Set, G-Counter, PN-Counter in
Shapiro et al. 2011, "Conflict-free Replicated Data Types").

They are not linearizable: a read may lack what was acknowledged before it. The promise is about the *final reads*,
which begin a while after all is healed (`final_reads`):

* a set (`sets`): each final read has every element of an acknowledged add;
* a counter (`counters`): each final read is the sum of all acknowledged adds, and of any of unknown outcome;

and about every read: it shows nothing that was not added. Sources: the workloads `broadcast`, `g-set`, `g-counter` and
`pn-counter` of Maelstrom, and `jepsen.checker/set-full`, which judges the first two. Both test less: Maelstrom judges
the final reads of a counter alone, and `set-full` the last read that has, and the last one that lacks, an element.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Promise(NamedTuple):
    """The kind of an object that converges: its name as users write it, and its operations."""

    name: str
    fs: frozenset[str]


SET: Final = Promise("converging-set", frozenset({"add", "broadcast", "read"}))
COUNTER: Final = Promise("converging-counter", frozenset({"add", "read"}))

CONVERGING: Final[Mapping[str, Promise]] = {promise.name: promise for promise in (SET, COUNTER)}
"""The objects by the names users write."""
