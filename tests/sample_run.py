# SPDX-License-Identifier: Apache-2.0
"""A made-up but realistic run of 60 s for looking at the report: faults, leader changes, anomalies of every kind.

`python tests/sample_run.py FOLDER` writes the run's files and `report.html` there.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from results.history import History
from results.op import NEMESIS, Op, OpType
from results.record import Observation, RunRecord
from results.report import write_report
from results.verdict import Anomaly, CheckResult, Judgement, Verdict

MS = 1_000_000
S = 1000 * MS
NODES = ["n1", "n2", "n3", "n4", "n5"]
LEADERS = [(0.0, "n3", 1), (13.2, "n1", 2), (33.4, "n5", 4), (52.1, "n2", 5)]
FAULTS: list[tuple[int, str, float, float, dict[str, Any]]] = [
    (1, "partition-halves", 10.0, 20.2, {"n3": ["n1", "n2", "n5"], "n4": ["n1", "n2", "n5"], "n1": ["n3", "n4"]}),
    (2, "hammer-time", 31.0, 41.0, {"n1": "SIGSTOP", "n4": "SIGSTOP"}),
    (3, "partition-halves", 50.0, 56.0, {"n5": ["n1", "n2", "n3"]}),
]


@dataclass
class Story:
    """Ops written in any order, put in order of time and numbered at the end."""

    ops: list[dict[str, Any]] = field(default_factory=list)

    def add(self, at: float, process: int, type_: OpType, f: str, **more: Any) -> None:
        self.ops.append({"time": int(at), "process": process, "type": type_, "f": f, **more})

    def history(self) -> History:
        self.ops.sort(key=lambda op: op["time"])
        return History(Op(index=i, **op) for i, op in enumerate(self.ops))


def leader_at(seconds: float) -> tuple[str, int]:
    return next((node, term) for start, node, term in reversed(LEADERS) if start <= seconds)


def sample_history(rate: float = 100, length_s: float = 60, concurrency: int = 10, seed: int = 7) -> History:
    """Clients at a rate; slow and uncertain while a fault has just begun and no new leader serves."""
    rng = random.Random(seed)
    story = Story()
    for number, fault, start, end, nodes in FAULTS:
        if start > length_s:
            continue
        requested = {"fault": fault, "id": number, "nodes": nodes}
        story.add(start * S, NEMESIS, "invoke", "inject", value=requested)
        text = {
            **requested,
            "seen": True,
            "evidence": {n: f"{rng.randrange(3, 40)} packets dropped" for n in nodes},
            "impairs": {n: [n] for n in nodes},
        }
        story.add((start + 0.4) * S, NEMESIS, "info", "inject", value=text)
        story.add((end - 0.3) * S, NEMESIS, "invoke", "heal", value=requested)
        story.add(
            end * S, NEMESIS, "info", "heal", value={**requested, "evidence": dict.fromkeys(nodes, "answers again")}
        )
    free = [0.0] * concurrency
    process = list(range(concurrency))
    for value in range(1, int(rate * length_s) + 1):
        at = (value - 1) / rate
        thread = min(range(concurrency), key=lambda t: free[t])
        at = max(at, free[thread]) + rng.random() / rate
        f = rng.choice(["read", "read", "write", "write", "cas"])
        key = f"k{int(at / 4) * 2 + rng.randrange(2)}"
        argument = None if f == "read" else value if f == "write" else [value - 7, value]
        hurt = any(start <= at < start + 3.3 for _, _, start, _, _ in FAULTS)
        draw = rng.random()
        took = rng.lognormvariate(1.0, 0.6) / 1000
        type_: OpType = "ok"
        error: str | None = None
        if hurt and draw < 0.7:
            took, type_, error = 4.0, "info", f"no answer within 4000 ms from 198.18.0.{rng.randrange(11, 16)}:20911"
        elif hurt or draw < 0.004:
            took, type_, error = 0.002, "fail", "not leader: refused before the append"
        elif f == "cas" and draw < 0.25:
            type_, error = "fail", f"is {value - 9}, not {value - 7}"
        result = max(1, value - rng.randrange(1, 9)) if f == "read" and type_ == "ok" else argument
        where = {"node": leader_at(at)[0]}
        story.add(at * S, process[thread], "invoke", f, key=key, value=argument, extra=where)
        story.add((at + took) * S, process[thread], type_, f, key=key, value=result, error=error, extra=where)
        free[thread] = at + took
        if type_ == "info":
            process[thread] += concurrency
    return story.history()


def sample_observations(length_s: float = 60) -> list[Observation]:
    """Every node asked once a second."""
    found = []
    for second in range(int(length_s) + 1):
        for i, node in enumerate(NODES):
            leader, term = leader_at(second)
            cut = any(start < second < end and node in nodes for _, _, start, end, nodes in FAULTS)
            electing = any(start < second < start + 3 for _, _, start, _, _ in FAULTS)
            stopped = 31 < second < 41 and node in ("n1", "n4")
            end = second * 60
            if node == "n3" and second in (14, 15, 16):
                role, leader, term, end = "leader", "n3", 1, 13 * 60
            elif stopped:
                found.append(Observation(second * S + i * MS, node, "silent"))
                continue
            elif node == leader and not electing:
                role = "leader"
            elif electing:
                role = "candidate" if i % 2 else "follower"
            else:
                role = "follower"
            behind = 400 if cut else i * 3
            committed = max(-1, end - behind)
            found.append(
                Observation(second * S + i * MS, node, role, term, leader, 0, end - behind // 2, committed, committed)
            )
    return found


def sample_judgement(history: History) -> Judgement:
    """An invalid run with three anomalies, one of them legal, and a checker that failed."""
    calls = history.clients.calls
    late = [c for c in calls if c.start > 34 * S and c.invoke.key == calls[len(calls) // 2].invoke.key]
    key = calls[len(calls) // 2].invoke.key
    write = next(c for c in calls if c.invoke.key == key and c.invoke.f == "write" and c.outcome == "ok")
    reads = [c for c in calls if c.invoke.key == key and c.invoke.f == "read" and c.outcome == "ok"][-2:]
    core = [op.index for c in [write, *reads] for op in (c.invoke, c.completion) if op is not None]
    stale = Anomaly(
        "nonlinearizable",
        f"The read at {reads[-1].start / S:.1f} s of key {key} saw a value that had been overwritten before it was "
        "invoked: no order of the operations explains it.",
        key=key,
        ops=core,
        window=(write.start, reads[-1].end or reads[-1].start),
        details={"states": [f"{key} = {write.invoke.value}", f"{key} = 17"], "search_ms": 3.1, "late": len(late)},
    )
    tried = [c.invoke.index for c in calls if 50 * S < c.start < 52 * S][:6]
    log = [
        "2026-11-21 06:13:42.118 WARN  [n4] COMPARE -> INSTALL_SNAPSHOT for n1 n2 n3 n5",
        "2026-11-21 06:13:42.310 ERROR [n4] time-out 264: <script>alert(1)</script>",
    ]
    away = Anomaly(
        "unavailable",
        "no operation was acknowledged for 33.1 s from 00:50.0 (limit 30 s) although a majority of the nodes was up "
        "and connected; 204 ops were tried; n5 (term 4) reported to be leader",
        ops=tried,
        window=(50 * S, 56 * S),
        details={
            "nodes": {n: {"role": "follower", "term": 4, "time": 55 * S, "end": 310, "log": log} for n in NODES},
            "attempts": 204,
        },
    )
    legal = Anomaly(
        "stale-read", "A follower's read was behind.", key=key, ops=core[:2], legal="read mode `unsafe` permits it"
    )
    return Judgement(
        [
            CheckResult("well-formed", Verdict.VALID, f"{len(history)} ops, every completion has its invocation", ms=4),
            CheckResult("linearizability", Verdict.INVALID, f"1 of 30 keys: {key}", [stale, legal], {"keys": 30}, 91),
            CheckResult("availability", Verdict.INVALID, "nothing acknowledged for 33.1 s", [away], {"acks": 5042}, 7),
            CheckResult(
                "convergence",
                Verdict.UNKNOWN,
                "the checker itself failed: KeyError: 'n9'",
                stats={"traceback": "Traceback (most recent call last):\n  File ...\nKeyError: 'n9'"},
                ms=0.2,
            ),
            CheckResult("faults", Verdict.VALID, "3 of 3 seen to take effect, all healed", stats={"seen": 3}, ms=0.1),
        ]
    )


PLAN: dict[str, Any] = {
    "workload": "register",
    "seed": 7,
    "time_limit": "60s",
    "rate": 100.0,
    "concurrency": 10,
    "snapshot": False,
    "cluster": {"backend": "auto", "nodes": 5, "hosts": []},
    "server": {"set": {"heartBeatTimeIntervalMs": "500"}},
    "nemesis": [{"fault": "partition-halves", "every": "20s", "for": "10s"}, {"fault": "hammer-time", "every": "20s"}],
}
ENVIRONMENT: dict[str, Any] = {
    "started_at": "2026-11-21T06:12:44+00:00",
    "backend": "docker",
    "dledger_version": "0.4.0",
    "java_version": "17.0.13",
    "kernel": "6.1.0-27-amd64",
    "git_head": "844e5ac",
}


def sample_run(folder: Path, **options: Any) -> tuple[RunRecord, Judgement]:
    """The record of the run, its files in `folder`, and the judgement on it."""
    history = sample_history(**options)
    logs: dict[str, list[Path]] = {}
    for node in NODES:
        at = folder / "nodes" / node
        at.mkdir(parents=True, exist_ok=True)
        (at / "server.log").write_text("2026-11-21 06:12:44.000 INFO started\n" * 20)
        logs[node] = [at / "server.log"]
    (folder / "plan.toml").write_text('workload = "register"\nseed = 7\n')
    record = RunRecord(history, PLAN, ENVIRONMENT, sample_observations(), logs, folder)
    return record, sample_judgement(history)


if __name__ == "__main__":
    into = Path(sys.argv[1])
    run, judged = sample_run(into)
    write_report(run, judged, into / "report.html")
    print(into / "report.html", (into / "report.html").stat().st_size, "bytes")
