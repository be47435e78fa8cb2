# SPDX-License-Identifier: Apache-2.0
"""The runs of a search on real servers: kept clusters, a record on the disk that survives a break, and the results."""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from harness.findings.rates import describe
from harness.findings.reproduce import Subject, judged
from harness.findings.signature import Sight
from harness.plan.plan import Plan, PlanError
from harness.series.child import ChildRun, run_child, run_plan
from harness.series.early import EarlyEnds
from harness.series.limits import Spent
from harness.series.shared import SharedCluster
from harness.shrink.shrinking import CONFIRM, Account
from results.alarm import EarlyEnd
from results.durable import append_text, write_text
from results.figures import many
from results.verdict import Verdict

RUNS: Final = "runs.jsonl"
PLAN: Final = "plan.toml"
ACCOUNT: Final = "account.md"


class Runner:
    """Runs plans one after the other. A run counts if its file has it: a search that was broken off begins again with
    the results of its folder, in their order, and without running them again.

    most: of all runs. until: `time.monotonic` after which no run begins. fresh: a new cluster for each run. whole: no
    run ends early.
    """

    def __init__(
        self,
        subject: Subject,
        folder: Path,
        store: Path,
        most: int,
        until: float | None,
        say: Callable[[str], None],
        fresh: bool = False,
        whole: bool = False,
    ) -> None:
        self.subject, self.folder, self.store, self.most, self.until, self.say = (
            subject,
            folder,
            store,
            most,
            until,
            say,
        )
        self.fresh, self.count = fresh, 0
        self.early = EarlyEnds(not whole, sorted(subject.signature.names) if subject.signature else ())
        self._stack = ExitStack()
        self._shared: SharedCluster | None = None
        self._shape: object = None
        self._known: dict[str, deque[bool | None]] = defaultdict(deque)
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / RUNS).exists():
            for line in (folder / RUNS).read_text().splitlines():
                one = json.loads(line)
                self._known[one["plan"]].append(one["shown"])
                self.early.count += one.get("early") is not None

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *problem: object) -> None:
        self._stack.close()

    def __call__(self, plan: Plan) -> bool | None:
        """See `harness.shrink.shrinking.Trial`. Raises Spent, PlanError, and Stopped for a stop signal."""
        known = self._known[plan.digest]
        if known:
            self.count += 1
            return known.popleft()
        if self.count >= self.most:
            raise Spent(f"{self.most} runs were made (--max-runs)")
        if self.until is not None and time.monotonic() >= self.until:
            raise Spent("the time is over (--hours)")
        self.count += 1
        shown, folder, early = self._run(plan)
        row: dict[str, Any] = {"plan": plan.digest, "shown": shown, "folder": folder}
        row |= {} if early is None else {"early": early.op, "not_run_s": early.not_run_s}
        append_text(self.folder / RUNS, json.dumps(row) + "\n", "the runs")
        return shown

    def _run(self, plan: Plan) -> tuple[bool | None, str, EarlyEnd | None]:
        shared = self._cluster(plan)
        seed = str(int.from_bytes(os.urandom(3), "big"))

        def start(own: Sequence[str]) -> ChildRun:
            return run_plan(plan, ["--seed", seed, *self.early.options, *own], self.store)

        done = start([]) if shared is None else shared.run(start)
        if done.stopped is not None:
            raise done.stopped
        sight = judged(self.subject, done)[0].sight
        if shared is not None:
            shared.after(sound=sight == Sight.NOT_SHOWN and done.code == Verdict.VALID.exit_code)
        folder = str(done.folder.path) if done.folder is not None else ""
        self.say(f"  {self.count:>4}  {sight.value:<9}  {folder or done.problem}")
        early = self.early.note(done, sight != Sight.NOT_TRIED, self.say)
        return (None if sight == Sight.NOT_TRIED else sight == Sight.SHOWN), folder, early

    def _cluster(self, plan: Plan) -> SharedCluster | None:
        """The cluster that plans of one shape share; the one of the shape before is removed."""
        if self.fresh:
            return None
        shape = (plan.cluster, plan.server, plan.workload)
        if self._shared is None or shape != self._shape:
            self._stack.close()
            self._shared = self._stack.enter_context(SharedCluster())
            self._shape = shape
        return self._shared


def first_plan(subject: Subject, store: Path, say: Callable[[str], None]) -> Plan:
    """The plan to begin with, with explicit strikes: that of the stored run, the given one, or that of a run which
    shows what is looked for. Raises PlanError if none of `CONFIRM` runs shows it.
    """
    if subject.args[:1] == ["--plan"] and len(subject.args) == 2:
        plan = Plan.read(Path(subject.args[1]))
        if plan.strikes:
            return plan
    for _ in range(CONFIRM):
        done = run_child(list(subject.args), store)
        if done.stopped is not None:
            raise done.stopped
        seen = judged(subject, done)[0]
        if done.folder is None:
            continue
        say(f"  first {seen.sight.value:<9}  {done.folder.path}")
        if seen.sight == Sight.SHOWN:
            return Plan.read(done.folder.path / "effective.toml")
    raise PlanError(f"{subject.title}: it did not show in {CONFIRM} runs; a stored run in which it showed is right")


def write_results(account: Account, subject: Subject, folder: Path, early: int = 0) -> None:
    """Writes the plan, the account of a page, and a row for the record. early: the runs that ended early."""
    write_text(folder / PLAN, account.plan.to_toml(), "the plan")
    write_text(folder / ACCOUNT, "".join(f"{line}\n" for line in account_lines(account, subject, early)), "the account")


def account_lines(account: Account, subject: Subject, early: int = 0) -> list[str]:
    """The account in Markdown: what is left, what was tried in vain as well, and the row for a finding."""
    plan = account.plan
    shown, runs = account.last if account.last[1] else account.first
    lines = [f"# {subject.title}, shrunk", ""]
    what = "on new seeds" if account.last[1] else "before it was shrunk; the result was not verified"
    lines.append(f"It shows in {describe(shown, runs)} {what}. {account.runs} runs; the search ended: {account.ended}.")
    lines += ["", f"{len(plan.strikes)} strikes, {plan.time_limit_s:g} s, {plan.concurrency} clients:", ""]
    for strike in plan.strikes:
        when = f"after {strike.after}" if strike.at_s is None else f"at {strike.at_s:g} s"
        lines.append(f"* `{strike.fault}` at `{strike.target or 'its default'}`, {when}, for {strike.for_s:g} s")
    lines += ["", "| tried | shown | accepted |", "|---|---|---|"]
    for one in account.tried:
        word = {True: "yes", False: "no", None: "not decided"}[one.accepted]
        lines.append(f"| {one.name} | {one.shown} of {one.runs} | {word} |")
    if early:
        lines.append(f"\n{many(early, 'run')} ended early, at the anomaly.")
    if account.nothing:
        lines.append(f"\n{account.nothing} more runs tried nothing.")
    names = ", ".join(f'"{name}"' for name in sorted(subject.signature.names if subject.signature else ()))
    lines += ["", "For a finding (`harness/findings/data/NN-NAME.toml`):", "", "```toml"]
    lines += [f'command = "--plan {PLAN}"', "", "[signature]", f"anomalies = [{names}]", "", "[[measured]]"]
    lines += [f"shown = {shown}", f"runs = {runs}", "```"]
    return lines
