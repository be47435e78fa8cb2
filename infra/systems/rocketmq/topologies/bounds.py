# SPDX-License-Identifier: Apache-2.0
"""Limits in time that follow from a broker's settings: for how long an acknowledged message may be on no disk, and how
far a replica that may become master may lag.

Sources: `CommitLog.FlushRealTimeService` and `CommitRealTimeService`, `AutoSwitchHAService.maybeShrinkSyncStateSet`,
`MessageStoreConfig` and `BrokerConfig` (the defaults), 5.1.0 to 5.5.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MARGIN_S: Final = 5.0
"""Room for one write to a slow disk, and for the time between an event and its observation."""


def flushed_within_s(settings: Mapping[str, str]) -> float:
    """The largest age, in seconds, of a message that a broker with flushDiskType=ASYNC_FLUSH has not synced.

    The broker checks every `flushIntervalCommitLog`, and after `flushCommitLogThoroughInterval` it syncs also less than
    `flushCommitLogLeastPages`. With `transientStorePoolEnable` a message reaches the file after a commit of the pool.
    """
    limit = _number(settings, "flushIntervalCommitLog", 500) + _number(
        settings, "flushCommitLogThoroughInterval", 10_000
    )
    if settings.get("transientStorePoolEnable") == "true":
        limit += _number(settings, "commitIntervalCommitLog", 200) + _number(
            settings, "commitCommitLogThoroughInterval", 200
        )
    return limit / 1000 + MARGIN_S


def flushed_bytes(settings: Mapping[str, str]) -> tuple[int, float] | None:
    """(bytes, seconds): a broker with ASYNC_FLUSH syncs a message at latest so long after so many bytes were appended
    behind it: it checks every `flushIntervalCommitLog` whether `flushCommitLogLeastPages` of 4 KiB are dirty. None: a
    pool of memory is in front of the file.
    """
    if settings.get("transientStorePoolEnable") == "true":
        return None
    pages = _number(settings, "flushCommitLogLeastPages", 4)
    return int(pages + 1) * 4096, _number(settings, "flushIntervalCommitLog", 500) / 1000 + MARGIN_S


def lag_within_s(settings: Mapping[str, str]) -> float:
    """The largest lag of a replica of the SyncStateSet behind its master, in seconds: after `haMaxTimeSlaveNotCatchup`
    the master has it removed, and it checks every `checkSyncStateSetPeriod`.
    """
    return (
        _number(settings, "haMaxTimeSlaveNotCatchup", 15_000) + _number(settings, "checkSyncStateSetPeriod", 5_000)
    ) / 1000 + MARGIN_S


def expires_after_s(settings: Mapping[str, str]) -> float:
    """The age, in seconds, at which a broker deletes files of the CommitLog (`fileReservedTime`, in hours)."""
    return _number(settings, "fileReservedTime", 72) * 3600


def offsets_written_s(settings: Mapping[str, str]) -> float:
    """The time, in seconds, between two writes of a broker's committed offsets (`flushConsumerOffsetInterval`)."""
    return _number(settings, "flushConsumerOffsetInterval", 5_000) / 1000


def _number(settings: Mapping[str, str], name: str, default: int) -> float:
    """A setting as a number; the server's own default if it is not set, or no number."""
    text = settings.get(name, "")
    return float(text) if text.isdecimal() else float(default)
