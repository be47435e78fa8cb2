# SPDX-License-Identifier: Apache-2.0
"""The checker of message logs, queue by queue on Spark: for histories that are larger than a worker.

A history is divided into parts. `checkers.messages.log.LogAnomalies` itself checks each part and combines the results,
so this module contains no rules. Its rules concern one queue at a time, or follow one message. The parts are therefore
sets of queues, each with all ops on them. Two queues are in one part if a message was seen in both, or was sent to one
and seen in the other.

Ops without a queue go to every part: those of the nemesis, those that change a process' position (`assign`, `crash`,
`seek`), and a `pop`, of which a part has the messages of its own queues. So does a `reset`, which may be of all queues.
One worker holds a part. A history with few queues, or whose messages move between all of them, has few parts.

A history gives no verdict if its ops do not pair (`results.history`), or if its indices or times are out of order. This
is checked first, by process, and such a run is `unknown` here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from checkers.base.schema import BadOp
from checkers.messages.log.anomalies import Findings, LogAnomalies
from checkers.messages.ops import explained
from checkers.run.wellformed import breaches
from results.history import History
from results.op import NO_EXTRA, OK, Op
from results.record import RunRecord
from results.verdict import CheckResult, Verdict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_PARTS: Final = 256
"""The limit for one history: each part costs a copy of the ops without a queue. Small parts are merged."""

COLUMNS: Final = ("index", "time", "process", "type", "f", "key", "value", "error", "extra")


class OpRow(NamedTuple):
    """A row of an op table. `at`: the op's index. `value` and `extra`: JSON, or None."""

    run: str
    at: int
    time: int
    process: int
    type: Any
    f: str
    key: str | None
    value: str | None
    error: str | None
    extra: str | None

    def op(self, index: int) -> Op:
        value = None if self.value is None else json.loads(self.value)
        extra = json.loads(self.extra) if self.extra else NO_EXTRA
        return Op(index, self.time, self.process, self.type, self.f, self.key, value, self.error, extra)


class PartResult(NamedTuple):
    """The result of a part: its findings, or the first op that is malformed."""

    found: Findings | None
    bad: BadOp | None = None


def messages_of(row: OpRow) -> Iterator[tuple[str, Any]]:
    """Yields (queue, message) of every message that an op sends or returns, in any queue; (queue, None) of others."""
    if row.process < 0 or row.f == "reset":
        return
    value = None if row.value is None else json.loads(row.value)
    if row.key is not None:
        yield row.key, None
        if row.f == "send" and row.type == "invoke":
            yield row.key, json.dumps(value)
    items = value if isinstance(value, list) else ()
    if row.f == "assign":
        yield from ((queue, None) for queue in items if isinstance(queue, str))
    elif row.type == OK and row.f in ("poll", "replica-read", "consume", "pop"):
        for item in items:
            place = [row.key, *item] if row.f != "pop" and isinstance(item, list) else item
            if isinstance(place, list) and len(place) > 2 and isinstance(place[0], str):
                yield place[0], json.dumps(place[2])


def divided(queues: Iterable[str], together: Iterable[Iterable[str]]) -> dict[str, int]:
    """queue -> its part, below `MOST_PARTS`. `together`: queues that must be in one part."""
    head = {queue: queue for queue in queues}

    def find(queue: str) -> str:
        while head[queue] != queue:
            head[queue] = queue = head[head[queue]]
        return queue

    for some in together:
        first, *others = map(find, some)
        for other in others:
            head[find(other)] = find(first)
    numbers: dict[str, int] = {}
    return {queue: numbers.setdefault(find(queue), len(numbers) % MOST_PARTS) for queue in sorted(head)}


def parts_of(row: OpRow, part_of: Mapping[str, int]) -> Iterable[int]:
    """The parts that an op goes to."""
    if row.process < 0 or row.key is None or row.f == "reset":
        return dict.fromkeys(part_of.values())
    return (part_of[row.key],)


def scan_part(rows: Iterable[OpRow], mine: set[str], about: RunRecord) -> PartResult:
    """Examines one part of a history: `rows` in any order, those of the queues `mine` and those without a queue."""
    ordered = sorted(rows, key=lambda row: row.at)
    # The judges use an op's index as its place.
    record = replace(about, history=History(_kept(row.op(place), mine) for place, row in enumerate(ordered)))
    try:
        with explained(record.history):
            found = LogAnomalies().examine(record)
    except BadOp as problem:
        return PartResult(None, BadOp(ordered[problem.op].at, problem.what))
    back = [replace(one, ops=[ordered[op].at for op in one.ops]) for one in found.anomalies]
    return PartResult(Findings(back, found.stats))


def conclude(about: RunRecord, parts: Sequence[PartResult]) -> CheckResult:
    """The verdict on the whole, from the results of its parts."""
    bad = min((part.bad for part in parts if part.bad is not None), key=lambda problem: problem.op, default=None)
    if bad is not None:
        return CheckResult(LogAnomalies.name, Verdict.UNKNOWN, str(bad))
    return LogAnomalies().conclude(about, [part.found for part in parts if part.found is not None])


def first_breach(rows: Iterable[OpRow]) -> str | None:
    """The reason why the ops of one process are not a history by themselves, or None."""
    ordered = sorted(rows, key=lambda row: row.at)
    ops = (replace(row._replace(value=None, extra=None).op(0), index=place) for place, row in enumerate(ordered))
    found = next(breaches(History(ops)), None)
    return None if found is None else f"op {ordered[found.ops[0]].at} does not match the previous op of its process"


def judged(ops: DataFrame, about: Mapping[str, RunRecord]) -> dict[str, CheckResult]:
    """The result of the judge `log` for each run of an op table. `about`: name of a run -> its other data."""
    context = ops.sparkSession.sparkContext
    texts = ("type", "f", "key", "value", "error", "extra")
    plain = ops.selectExpr(
        "TRY_CAST(run AS STRING) AS run",
        *(f"TRY_CAST(`{name}` AS STRING) AS `{name}`" if name in texts else f"`{name}`" for name in COLUMNS),
    )
    rows = plain.rdd.map(lambda row: OpRow(*row))
    known = {run: CheckResult(LogAnomalies.name, Verdict.UNKNOWN, reason) for run, reason in _malformed(plain, rows)}
    runs = [row["run"] for row in plain.select("run").distinct().collect() if row["run"] not in known]

    places = rows.flatMap(lambda row: [((row.run, message), queue) for queue, message in messages_of(row)]).distinct()
    queues = places.map(lambda place: (place[0][0], place[1])).distinct().collect()
    wandered = (
        places.filter(lambda place: place[0][1] is not None)
        .groupByKey()
        .map(lambda one: (one[0][0], tuple(sorted(one[1]))))
        .filter(lambda one: len(one[1]) > 1)
        .distinct()
        .collect()
    )
    part_of = {
        run: divided((q for name, q in queues if name == run), (some for name, some in wandered if name == run))
        for run in runs
    }
    shared = context.broadcast((part_of, dict(about)))

    def send_to(row: OpRow) -> list[tuple[tuple[str, int], OpRow]]:
        division = shared.value[0].get(row.run)
        return [] if division is None else [((row.run, part), row) for part in parts_of(row, division)]

    def look(one: tuple[tuple[str, int], Iterable[OpRow]]) -> tuple[str, PartResult]:
        (run, part), own = one
        division, records = shared.value
        mine = {queue for queue, number in division[run].items() if number == part}
        return run, scan_part(own, mine, records.get(run, RunRecord(History(()))))

    count = max(1, sum(len(set(division.values())) for division in part_of.values()))
    found: dict[str, list[PartResult]] = {run: [] for run in runs}
    for run, looked in rows.flatMap(send_to).groupByKey(count).map(look).collect():
        found[run].append(looked)
    shared.unpersist()
    nothing = RunRecord(History(()))
    return known | {run: conclude(about.get(run, nothing), parts) for run, parts in found.items()}


def _kept(op: Op, mine: set[str]) -> Op:
    """The op as a part sees it: of several queues, its own. (The judge reports malformed values.)"""
    if not isinstance(op.value, list) or op.f not in ("pop", "assign"):
        return op
    if op.f == "assign":
        return replace(op, value=[queue for queue in op.value if queue in mine or not isinstance(queue, str)])
    shown = [held for held in op.value if not isinstance(held, list) or not held or held[0] in mine]
    return replace(op, value=shown)


def _malformed(plain: DataFrame, rows: Any) -> list[tuple[str, str]]:
    """(run, reason) of runs that are no histories."""
    found = rows.map(lambda row: ((row.run, row.process), row._replace(value=None, extra=None))).groupByKey()
    breaches = found.map(lambda one: (one[0][0], first_breach(one[1]))).filter(lambda one: one[1] is not None)
    wrong: list[tuple[str, str]] = breaches.reduceByKey(min).collect()
    counted = plain.groupBy("run").agg({"index": "max", "*": "count"}).toDF("run", "most", "count")
    distinct = plain.select("run", "index").distinct().groupBy("run").count().toDF("run", "different")
    both = counted.join(distinct, "run").where("most + 1 <> count OR different <> count")
    wrong += [(row["run"], "the indices of its ops are not 0, 1, 2, ...") for row in both.collect()]
    after = plain.selectExpr("run AS run_", "`index` - 1 AS index_", "`time` AS time_")
    back = plain.join(after, on=(plain["run"] == after["run_"]) & (plain["index"] == after["index_"]))
    back = back.where("time_ < `time`").select("run").distinct()
    wrong += [(row["run"], "its times decrease") for row in back.collect()]
    return [(run, f"the history is not well-formed: {why}") for run, why in dict(reversed(wrong)).items()]
