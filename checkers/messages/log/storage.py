# SPDX-License-Identifier: Apache-2.0
"""The checker of the disks: compares the files of the stopped brokers with one another and with the history.

Clients see messages through indexes and caches; the files remain when the servers have ended. A message that readers
miss may be in the log without an index entry (`lost-by-index`). This is a different bug than a message on no disk
(`lost`). The checker reads the summaries of the run (`FILE` of each node; `infra.systems.rocketmq.store.summary`
describes their lines), so a stored run can be checked again without its machines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from checkers.base.legality import conclude, divided, permission
from results.errors import HistoryError
from results.figures import many
from results.op import Op
from results.reading import opened
from results.record import RunRecord
from results.verdict import Anomaly, CheckResult, Verdict

FILE: Final = "ground-truth.jsonl"
"""The name of the summary in each node's folder of a run made with `--ground-truth`."""

_SHOWN: Final = 20

Place = tuple[str, int]
"""Key of a queue (`topic:group:queue`) and an offset there."""

Id = int | str


@dataclass
class Disk:
    """One node's files.

    index     place -> id, of messages that an index entry leads to: readers can see these.
    hidden    id -> physical offset, of messages in the log that no index entry leads to.
    corrupt   (place, physical) of indexed records that are damaged.
    problems  the unreadable parts.
    """

    node: str
    group: str
    index: dict[Place, Id] = field(default_factory=dict)
    hidden: dict[Id, int] = field(default_factory=dict)
    corrupt: list[tuple[Place, int]] = field(default_factory=list)
    problems: Sequence[str] = ()


class GroundTruth:
    """Compares files with files, and files with the history. `unknown` if a node's files were not read."""

    name = "ground-truth"

    def check(self, run: RunRecord) -> CheckResult:
        """`stats`: messages on each node's disk that readers can see, and those that they cannot see."""
        disks = list(read_disks(run.path)) if run.path is not None else []
        if not disks:
            return CheckResult(self.name, Verdict.UNKNOWN, "no node's files were read")
        found = [
            *_gone(run, disks),
            *(anomaly for disk in disks for anomaly in _damage(disk)),
            *_divergent(disks),
            *_unstored(run, disks),
        ]
        stats = {disk.node: {"visible": len(disk.index), "hidden": len(disk.hidden)} for disk in disks}
        problems = [f"{disk.node}: {problem}" for disk in disks for problem in disk.problems]
        most = max(len(disk.index) for disk in disks)
        reason = f"{len(disks)} nodes' files agree with the history, {most:,} messages on the fullest"
        unknown = f"not everything on the disks could be read: {problems[0]}" if problems else None
        return conclude(self.name, run, found, {"disks": stats, "problems": problems}, reason, unknown)


def read_disks(folder: Path) -> Iterator[Disk]:
    """Yields the content of each node's summary. Raises HistoryError for a file that is unreadable, or no summary."""
    for path in sorted(folder.glob(f"nodes/*/{FILE}")):
        with open_summary(path) as lines:
            try:
                head = json.loads(next(lines))["head"]
                disk = Disk(path.parent.name, head["group"], problems=head["problems"])
                for line in lines:
                    _take(disk, json.loads(line))
            except (StopIteration, KeyError, TypeError, ValueError) as problem:
                raise HistoryError(path, None, f"no summary of a broker's files ({problem!r})") from None
        yield disk


def open_summary(path: Path) -> IO[bytes]:
    try:
        return opened(path, follow=False)
    except OSError as problem:
        raise HistoryError(path, None, f"the summary of a broker's files cannot be read: {problem.strerror}") from None


def _take(disk: Disk, reported: Any) -> None:
    """Adds one line of a summary."""
    if isinstance(reported, dict):
        return  # for `checkers.messages.replica_files`
    topic, queue, offset, physical, message, intact, indexed = reported[:7]
    place = (f"{topic}:{disk.group}:{queue}", offset)
    # Without an answer (`null`: the queues could not be read), the log alone counts; `problems` has the reason.
    if indexed is False:
        disk.hidden[message] = physical
        return
    if intact:
        disk.index[place] = message
    else:
        disk.corrupt.append((place, physical))


def _gone(run: RunRecord, disks: Sequence[Disk]) -> Iterator[Anomaly]:
    """Acknowledged messages that no reader can find on any disk."""
    visible = {message for disk in disks for message in disk.index.values()}
    hidden = {message: disk for disk in disks for message in disk.hidden}
    lost: list[Op] = []
    unseen: list[Op] = []
    for op in run.history:
        if op.f == "send" and op.type == "ok" and op.value[1] not in visible:
            (unseen if op.value[1] in hidden else lost).append(op)
    names = ", ".join(disk.node for disk in disks)
    for part in divided(permission(run, "lost"), lost, lambda op: [op.time]):
        yield Anomaly(
            "lost",
            f"{_many(part.cases, 'acknowledged message')} on no disk: not in the log and not in the index of {names} "
            f"has {_first(part.cases)}",
            ops=[op.index for op in part.cases[:_SHOWN]],
            window=(part.cases[0].time, part.cases[-1].time),
            details={"count": len(part.cases), "ids": [op.value[1] for op in part.cases[:_SHOWN]], **part.details},
            legal=part.legal,
        )
    if unseen:
        disk = hidden[unseen[0].value[1]]
        yield Anomaly(
            "lost-by-index",
            f"{_many(unseen, 'acknowledged message')} in a log, but in no index, so that no reader will ever get "
            f"{'it' if len(unseen) == 1 else 'them'}: {disk.node} holds {_first(unseen)} at byte "
            f"{disk.hidden[unseen[0].value[1]]} of its log",
            ops=[op.index for op in unseen[:_SHOWN]],
            window=(unseen[0].time, unseen[-1].time),
            details={"count": len(unseen), "ids": [op.value[1] for op in unseen[:_SHOWN]]},
        )


def _damage(disk: Disk) -> Iterator[Anomaly]:
    """Records that do not match their checksum or their place."""
    if disk.corrupt:
        (key, offset), physical = disk.corrupt[0]
        yield Anomaly(
            "corrupt-message",
            f"{disk.node}: {_many(disk.corrupt, 'message')} on the disk that do not match their checksum or are not at "
            f"their stated position, the first at byte {physical} of the log, offset {offset} of {key}",
            key,
            details={
                "node": disk.node,
                "count": len(disk.corrupt),
                "physical": [at for _, at in disk.corrupt[:_SHOWN]],
            },
        )


def _divergent(disks: Sequence[Disk]) -> Iterator[Anomaly]:
    """Two replicas of a group with different messages at one place."""
    for at, one in enumerate(disks):
        for other in disks[at + 1 :]:
            if one.group != other.group:
                continue
            differ = sorted(p for p, message in one.index.items() if other.index.get(p, message) != message)
            if differ:
                key, offset = differ[0]
                yield Anomaly(
                    "divergent-replicas",
                    f"the disks of {one.node} and {other.node} hold different messages at {len(differ):,} places, the "
                    f"first at offset {offset} of {key}: {one.index[differ[0]]} and {other.index[differ[0]]}",
                    key,
                    details={
                        "count": len(differ),
                        "nodes": [one.node, other.node],
                        "places": [[*place, one.index[place], other.index[place]] for place in differ[:_SHOWN]],
                    },
                )


def _unstored(run: RunRecord, disks: Sequence[Disk]) -> Iterator[Anomaly]:
    """Yields messages that a replica returned in the final reads, and that its disk lacks. It was stopped in order."""
    by_node: Mapping[str, Disk] = {disk.node: disk for disk in disks}
    found: dict[str, list[tuple[int, str, int, Id]]] = {}
    for op in run.history:
        if op.f != "replica-read" or op.type != "ok" or op.key is None:
            continue
        disk = by_node.get(op.extra["node"])
        if disk is None:
            continue
        for offset, message in op.value:
            if disk.index.get((op.key, offset)) != message:
                found.setdefault(disk.node, []).append((op.index, op.key, offset, message))
    for node, cases in found.items():
        _, key, offset, message = cases[0]
        yield Anomaly(
            "unstored-read",
            f"{node} returned {_many(cases, 'message')} in the final reads that its disk does not hold at that offset, "
            f"the first: {message} at offset {offset} of {key}; the disk has "
            f"{by_node[node].index.get((key, offset), 'nothing')} there",
            key,
            ops=sorted({at for at, *_ in cases})[:_SHOWN],
            details={"count": len(cases), "node": node},
        )


def _many(cases: Sequence[Any], one: str, more: str | None = None) -> str:
    return many(len(cases), one, more)


def _first(sends: Sequence[Op]) -> str:
    op = sends[0]
    node = op.extra.get("node", "a broker")
    return f"message {op.value[1]}, which {node} acknowledged at offset {op.value[0]} of {op.key}"
