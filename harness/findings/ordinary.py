# SPDX-License-Identifier: Apache-2.0
"""The log lines of findings that servers also write without the defect: id of the finding -> when they do.

In a run such a line counts beside an anomaly and a fault. In an operator's log it stands alone, and proves little.
Chosen by the servers' source, and by the logs of 141 valid runs of all kinds: a line that four of them have is here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ORDINARY: Final[Mapping[int, str]] = {
    5: "a master also writes it for each replica that was silent for `haHousekeepingInterval`",
    8: "without controllers, a slave also writes it at each change of its master's address",
    19: "a start after a kill or a power failure also writes it for a torn message at the end of the log",
    21: "each `BufferUnderflowException` and `InternalError` has this text",
    25: "controllers also write it while no replica of a group is alive",
    29: "each return of a master writes it",
    32: "a broker also writes it where another one has the id already",
    37: "each truncation of a deposed master writes it; a kill soon after it is dangerous",
    38: "each exception of this type has this text",
    40: "a DLedger group with an empty log also writes it",
    41: "a slave also writes it while its timer is a moment behind",
    42: "two consumers that want one queue also make a broker write it",
    43: "each connection of a slave writes it; an offset beyond the master's own end is the finding",
    47: "each producer with an unknown topic makes a broker write it",
    51: "each SyncStateSet that shrinks to one writes it; the sends that wait at this moment are the finding",
    52: "a dispatcher without a connection also writes the first of its texts",
    60: "single ones come from two proposals at a time; one that repeats for minutes is the finding",
    61: "each change of the SyncStateSet writes it; hundreds a minute are the finding",
    64: "the deletion of a topic by an administrator also writes it; every ten seconds on a slave is the finding",
    66: "each candidate that loses a vote writes it; every two seconds for minutes is the finding",
    67: "each truncation of a deposed leader writes it; one that was killed just before is the finding",
    68: "each start of a broker writes it; the finding needs a power failure before",
    69: "a master also writes it for each replica that was silent for `haHousekeepingInterval`",
    71: "DLedger controllers also write it when a master is lost",
}
