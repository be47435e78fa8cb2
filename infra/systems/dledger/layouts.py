# SPDX-License-Identifier: Apache-2.0
"""The files of a DLedger log as `infra.machines.primitives.bits` must know them to damage a chosen part of an entry.

Source: `DLedgerEntryCoder` (`encode`, `encodeIndex`), the same in DLedger 0.3.1.2, 0.3.2 and 0.4.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from infra.machines.primitives.bits import FileKind, Layout

DLEDGER_DATA: Final = Layout(
    head=48,
    used=(0, 4),
    accepts=(1, 2),
    skips=(0xFFFFFFFF,),
    variable=True,
    size=(4, 8),
    length=(44, 48),
    position=(24, 32),
    parts={"size": [(4, 8)], "crc": [(36, 44)], "header": [(0, 4), (8, 36), (44, 48)]},
)
"""header: magic number, index, term, position, channel, length of the body."""

DLEDGER_INDEX: Final = Layout(
    head=32,
    used=(0, 4),
    accepts=(1, 2),
    skips=(0xFFFFFFFF,),
    parts={"header": [(0, 4), (16, 32)], "size": [(12, 16)], "body": [(4, 12)]},
)
"""header: magic number, index, term; body: the entry's position."""

DLEDGER_FILES: Final[Mapping[str, FileKind]] = {
    "dledger-data": FileKind("**/dledger-*/data/*", DLEDGER_DATA),
    "dledger-index": FileKind("**/dledger-*/index/*", DLEDGER_INDEX),
    "epoch": FileKind("**/dledger-*/currterm"),
    "checkpoint": FileKind("**/dledger-*/checkpoint"),
}
"""The files of any server with a DLedger log: a broker, a controller, a member of a plain group."""

WIPED: Final[Mapping[str, str]] = dict.fromkeys(
    ("term-went-back", "voted-twice", "two-leaders-in-a-term"),
    "the disk with this member's term and vote was replaced by an empty one",
)
"""The permissions for a member of a Raft group after the loss of its data."""

DAMAGED: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("replicas-differ-on-disk", "torn-message", "corrupt-message", "unindexed", "broken-index", "snapshot-failed"),
        "the fault changed bytes in the files of this node, and nothing compares them with other replicas",
    ),
    **dict.fromkeys(
        ("server-died", "out-of-memory"),
        "the fault damaged files of this node: a server that stops serves nothing wrong from them",
    ),
}
"""The permissions for a server whose files were damaged."""
