# SPDX-License-Identifier: Apache-2.0
"""The files of a store as `infra.machines.primitives.bits` must know them to damage a chosen part of a record.

Sources: `MessageExtEncoder`, `ConsumeQueue` and the paths of `StorePathConfigHelper`, 5.3.3. Files that are not logs of
records (the checkpoint, the epochs, the index by key, whose entries follow a table of hashes) have no layout.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from infra.machines.primitives.bits import FileKind, Layout
from infra.systems.dledger.layouts import DLEDGER_FILES
from infra.systems.rocketmq.protocol.messages import BLANK, MAGIC_V1, MAGIC_V2

_FILL: Final = 0x7FFFFFFF
"""The size in units of a consume queue that only fill it up (`ConsumeQueue.fillPreBlank`)."""

COMMIT_LOG: Final = Layout(
    head=88,
    used=(4, 8),
    accepts=(MAGIC_V1, MAGIC_V2),
    skips=(BLANK,),
    variable=True,
    length=(84, 88),
    position=(28, 36),
    parts={"size": [(0, 4)], "crc": [(8, 12)], "header": [(4, 8), (12, 88)]},
)
"""Messages with IPv4 addresses; header: all other fields before the body, the length of the body among them."""

CONSUME_QUEUE: Final = Layout(
    head=20,
    used=(8, 12),
    skips=(_FILL,),
    parts={"header": [(0, 8)], "size": [(8, 12)], "body": [(12, 20)]},
)
"""header: the physical offset; body: the hash of the tag. There is no checksum."""

BROKER_FILES: Final[Mapping[str, FileKind]] = {
    "commitlog": FileKind("store/commitlog/*", COMMIT_LOG),
    "consumequeue": FileKind("store/consumequeue/*/*/*", CONSUME_QUEUE),
    "index": FileKind("store/index/*"),
    "checkpoint": FileKind("store/checkpoint"),
    "epoch": FileKind("store/epochFileCheckpoint"),
}
"""The files of a broker whose CommitLog is not DLedger's."""

RAFT_BROKER_FILES: Final[Mapping[str, FileKind]] = {
    **DLEDGER_FILES,
    **{kind: BROKER_FILES[kind] for kind in ("consumequeue", "index", "checkpoint")},
}
"""The files of a broker with a DLedger log."""
