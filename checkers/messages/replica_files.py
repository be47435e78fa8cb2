# SPDX-License-Identifier: Apache-2.0
"""The files of the stopped servers, entry by entry: replica against replica, and each index against its log.

Clients see a log through indexes and caches, from one replica at a time. A byte that differs on a disk, or a message
that no index names, is visible only once that replica leads. The harness reads the files with `--ground-truth`, and
after faults at disks (`results.strikes.AT_DISKS`). Their summaries are `checkers.messages.log.storage.FILE` in each
node's folder; `infra.systems.rocketmq.store.summary` and `infra.systems.dledger.entries` write them.

Only data below the point that is committed on the replica is judged: the rest may still be truncated (Raft, section
5.3; the confirm offset of RocketMQ). The last observations give that point: for a member of a Raft group its own, for
the master of a broker group its own, for a slave in sync the master's, if its log reaches as far.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from checkers.base.legality import conclude
from checkers.messages.log.storage import FILE, open_summary
from results.errors import HistoryError
from results.figures import many
from results.record import Observation, RunRecord
from results.verdict import Anomaly, CheckResult, Excuse

_SHOWN: Final = 20
_UNKNOWN: Final[Sequence[Any]] = (None, True, False)
"""The values of `crc`, `tagged` and `torn` in a summary without them."""


@dataclass
class Files:
    """One node's files.

    kind       `commitlog` or `dledger`: positions are bytes; `entries`: they are indices.
    entries    position -> CRC-32 of the entry.
    unindexed  (position, key of a queue, offset, why) of messages that no entry of their queue leads to.
    units      key of a queue -> the highest offset with a message.
    dangling   (key, offset, position) of entries that lead to no message.
    torn       (position, key, offset) of messages with zero bytes in their properties.
    unjudged   the number of messages whose queues could not be read, so that nobody knows if an entry leads to them.
    problems   unreadable parts, one line each: bytes that are no record, a damaged file.
    """

    node: str
    group: str
    kind: str
    entries: dict[int, int] = field(default_factory=dict)
    unindexed: list[tuple[int, str, int, str]] = field(default_factory=list)
    units: dict[str, int] = field(default_factory=dict)
    dangling: list[tuple[str, int, int]] = field(default_factory=list)
    torn: list[tuple[int, str, int]] = field(default_factory=list)
    unjudged: int = 0
    problems: Sequence[str] = ()


class ReplicaFiles:
    """`replicas-differ-on-disk`, `torn-message`, `unindexed` and `broken-index`."""

    name = "replica-files"
    order = 80

    @staticmethod
    def concerns(run: RunRecord) -> bool:
        """True if files were read at all."""
        return run.path is not None and any(run.path.glob(f"nodes/*/{FILE}"))

    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: node -> `entries`, and `until`: its committed position; `compared`: entries, over all pairs;
        `problems`: the unreadable parts.
        """
        files = list(read_files(run.path)) if run.path is not None else []
        until = committed(run)
        found: list[Anomaly] = []
        compared = 0
        for one, other in combinations(files, 2):
            if one.group == other.group and one.node in until and other.node in until:
                count, anomaly = _compare(one, other, min(until[one.node], until[other.node]))
                compared += count
                found += [anomaly] if anomaly is not None else []
        for of in files:
            committed_to = until.get(of.node, 0)
            found += [*_torn(of, committed_to), *_unindexed(of, committed_to), *_broken(of)]
        about = {of.node: {"entries": len(of.entries), "until": until.get(of.node)} for of in files}
        left_out = [of.node for of in files if of.node not in until]
        told = f"; not compared, because their committed position is unknown: {', '.join(left_out)}"
        problems = [f"{of.node}: {problem}" for of in files for problem in of.problems]
        valid = f"{many(len(files), 'replica')}, {many(compared, 'entry', 'entries')} compared in pairs"
        valid += f"; could not be read: {problems[0]}" if problems else ""
        unknown = None if compared or len(files) < 2 else "no two replicas could be compared"
        unread = [f"{of.node}: {next(iter(of.problems), 'its queues were not read')}" for of in files if of.unjudged]
        unjudged = sum(of.unjudged for of in files)
        excuses = [Excuse("queues-unread", unjudged, "; ".join(unread))] if unjudged else []
        return conclude(
            self.name,
            run,
            found[:_SHOWN],
            {**about, "compared": compared, "problems": problems},
            valid + (told if left_out else ""),
            unknown and unknown + (told if left_out else ""),
            excuses=excuses,
        )


def read_files(folder: Path) -> Iterator[Files]:
    """Yields the content of each node's summary. Raises HistoryError for a file that is unreadable, or no summary."""
    for path in sorted(folder.glob(f"nodes/*/{FILE}")):
        with open_summary(path) as lines:
            try:
                head = json.loads(next(lines))["head"]
                found = Files(path.parent.name, head["group"], head["files"], problems=head["problems"])
                for line in lines:
                    _take(found, json.loads(line))
            except (StopIteration, KeyError, TypeError, ValueError) as problem:
                raise HistoryError(path, None, f"no summary of a server's files ({problem!r})") from None
        yield found


def _take(files: Files, said: Any) -> None:
    """Adds one line of a summary. Lines of earlier versions end before the checksum, or before `torn`."""
    if isinstance(said, dict):
        if "other" in said:
            position, crc = said["other"]
            files.entries[position] = crc
        elif "dangling" in said:
            topic, queue, offset, physical, _ = said["dangling"]
            files.dangling.append((f"{topic}:{files.group}:{queue}", offset, physical))
        else:
            _take(files, said["behind"])
        return
    topic, queue, offset, physical, _, intact, indexed, _, _, _, *more = said
    key = f"{topic}:{files.group}:{queue}"
    columns = list(more)
    crc, tagged, torn = columns + list(_UNKNOWN[len(columns) :])
    if crc is not None:
        files.entries[physical] = crc
    if torn:
        files.torn.append((physical, key, offset))
    files.unjudged += indexed is None
    if indexed:
        files.units[key] = max(files.units.get(key, -1), offset)
    if intact and tagged is not None and not (indexed and tagged):
        why = "has the hash of another tag" if indexed else "is not there, or leads elsewhere"
        files.unindexed.append((physical, key, offset, why))


def committed(run: RunRecord) -> dict[str, int]:
    """Node -> the position (excluded) up to which its files must agree with others', by the last observations."""
    last: dict[str, Observation] = {}
    known: dict[str, Observation] = {}
    in_sync: list[str] | None = None
    for seen in run.observations:
        last[seen.node] = seen
        if seen.end is not None:
            known[seen.node] = seen
        if seen.extra.get("in_sync") is not None:
            in_sync = [str(node) for node in seen.extra["in_sync"]]
    traits = run.deployment.traits
    if traits.raft_log:
        # Indices are counted with the last one, brokers' bytes without.
        step = 0 if any("broker_name" in seen.extra for seen in known.values()) else 1
        return {node: seen.committed + step for node, seen in known.items() if seen.committed is not None}
    found: dict[str, int] = {}
    for members in run.deployment.groups.values():
        masters = [node for node in members if node in known and last[node].role == "leader"]
        if len(masters) != 1:
            continue
        master = known[masters[0]]
        top = master.committed if master.committed is not None else master.end
        for node in members:
            alike = node == master.node or not traits.in_sync or node in (in_sync or ())
            if alike and node in known and top is not None:
                found[node] = min(top, known[node].end or 0)
    return found


def _compare(one: Files, other: Files, until: int) -> tuple[int, Anomaly | None]:
    """The number of entries compared, and the first difference. A log may begin later than another."""
    if not one.entries or not other.entries:
        return 0, None
    begin = max(min(one.entries), min(other.entries))
    places = [place for place in one.entries.keys() | other.entries.keys() if begin <= place < until]
    differ = sorted(place for place in places if one.entries.get(place) != other.entries.get(place))
    if not differ:
        return len(places), None
    first = differ[0]
    where = f"index {first}" if one.kind == "entries" else f"byte {first:,}"
    lacks = next((of.node for of in (one, other) if first not in of.entries), None)
    how = f"{lacks} has no whole entry there" if lacks else "their bytes differ"
    return len(places), Anomaly(
        "replicas-differ-on-disk",
        f"the logs of {one.node} and {other.node} differ at {many(len(differ), 'place')} below {until:,}, which is "
        f"committed on both, first at {where}: {how}",
        details={
            "nodes": [one.node, other.node],
            "count": len(differ),
            "places": differ[:_SHOWN],
            "checksums": {of.node: of.entries.get(first) for of in (one, other)},
        },
    )


def _torn(files: Files, until: int) -> Iterator[Anomaly]:
    cases = sorted(case for case in files.torn if case[0] < until)
    if cases:
        physical, key, offset = cases[0]
        yield Anomaly(
            "torn-message",
            f"{files.node}: {many(len(cases), 'message')} of the log below {until:,}, which is committed, "
            f"{'has' if len(cases) == 1 else 'have'} zero bytes in the properties, the first at byte {physical:,} "
            f"(offset {offset} of {key})",
            key,
            details={"node": files.node, "count": len(cases), "places": [list(case) for case in cases[:_SHOWN]]},
        )


def _unindexed(files: Files, until: int) -> Iterator[Anomaly]:
    cases = sorted(case for case in files.unindexed if case[0] < until)
    if cases:
        physical, key, offset, why = cases[0]
        yield Anomaly(
            "unindexed",
            f"{files.node}: {many(len(cases), 'whole message')} of the log below {until:,}, which is committed, "
            f"{'is' if len(cases) == 1 else 'are'} not in the index: the entry for offset {offset} of {key} (byte "
            f"{physical:,} of the log) {why}",
            key,
            details={"node": files.node, "count": len(cases), "places": [list(case[:3]) for case in cases[:_SHOWN]]},
        )


def _broken(files: Files) -> Iterator[Anomaly]:
    """Yields entries that point to no message. Only those before the end of a queue are wrong: a truncation leaves old
    ones behind it.
    """
    named: Sequence[tuple[str, int, int]] = [
        (key, offset, physical) for key, offset, physical in files.dangling if offset < files.units.get(key, -1)
    ]
    if named:
        key, offset, physical = named[0]
        yield Anomaly(
            "broken-index",
            f"{files.node}: {many(len(named), 'index entry', 'index entries')} point to no message of the log, the "
            f"first at offset {offset} of {key}: to byte {physical:,}",
            key,
            details={"node": files.node, "count": len(named), "places": [list(case) for case in named[:_SHOWN]]},
        )
