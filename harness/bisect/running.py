# SPDX-License-Identifier: Apache-2.0
"""The builds of a bisection, their runs, and the answer in words."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from harness.bisect.search import Answer
from harness.findings.rates import describe
from harness.findings.reproduce import Subject, judged, own_options
from harness.findings.signature import Sight
from harness.plan.plan import PlanError
from harness.series.child import ChildRun, run_child
from harness.series.early import EarlyEnds
from harness.series.limits import Spent
from harness.series.shared import SharedCluster
from results.verdict import Verdict

Build = tuple[str, Sequence[str]]
"""The name of a build, and the options of `harness run` that start its servers."""


class Runner:
    """Runs builds, one run a call (`harness.bisect.search.Trial`). Runs of one build in a row share a kept cluster.

    whole: no run ends early.
    """

    def __init__(
        self,
        subject: Subject,
        extra: Sequence[str],
        builds: Sequence[Build],
        store: Path,
        until: float | None,
        say: Callable[[str], None],
        whole: bool = False,
    ) -> None:
        self.subject, self.extra, self.builds, self.store = subject, extra, builds, store
        self.until, self.say = until, say
        self.early = EarlyEnds(not whole, sorted(subject.signature.names) if subject.signature else ())
        self._shared = SharedCluster()
        self._last: int | None = None
        self._count = 0

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *problem: object) -> None:
        self._shared.remove()

    def __call__(self, number: int) -> bool | None:
        if self.until is not None and time.monotonic() >= self.until:
            raise Spent("the time is over (--hours)")
        shared = self._shared if self.subject.kept else None
        if number != self._last:
            self._shared.remove()
        self._last, self._count = number, self._count + 1
        name, words = self.builds[number]
        args = [*self.subject.args, *self.extra, *words, *own_options(self.subject), *self.early.options]

        def start(own: Sequence[str]) -> ChildRun:
            return run_child([*args, *own], self.store)

        run = start([]) if shared is None else shared.run(start)
        if run.stopped is not None:
            raise run.stopped
        seen = judged(self.subject, run)[0]
        if shared is not None:
            shared.after(sound=seen.sight == Sight.NOT_SHOWN and run.code == Verdict.VALID.exit_code)
        self.say(f"  {self._count:>3}  {name:<8} {seen.sight.value:<9} {seen.why}")
        self.early.note(run, seen.sight != Sight.NOT_TRIED, self.say)
        return None if seen.sight == Sight.NOT_TRIED else seen.sight == Sight.SHOWN


def builds_of(versions: str | None, folders: Sequence[Path], known: Sequence[str]) -> list[Build]:
    """The builds that a command line names. known: all versions, the oldest first. Raises PlanError."""
    if (versions is None) == (not folders):
        raise PlanError("--versions or --build names the builds: --versions all, or --build DIR for each, oldest first")
    if versions is None:
        found: list[Build] = [(str(folder), ["--server-jars", str(folder)]) for folder in folders]
    else:
        names = list(known) if versions == "all" else [word.strip() for word in versions.split(",") if word.strip()]
        order = [known.index(name) for name in names if name in known]
        if len(order) == len(names) and order != sorted(set(order)):
            raise PlanError(f"--versions {versions}: the oldest first, and each once: {', '.join(known)}")
        found = [(name, ["--version", name]) for name in names]
    if len(found) < 2:
        raise PlanError("one build has nothing to compare with; two or more are right")
    return found


def versions_of(topology: type) -> list[str]:
    """The versions of a topology's servers that can be run, the oldest first."""
    described = topology.known_versions()  # type: ignore[attr-defined]
    names = [name.split()[-1] for name, said in described.items() if not said.startswith("not available")]
    return sorted(names, key=lambda name: [int(part) for part in name.split(".")])


def lines(answer: Answer, names: Sequence[str]) -> Iterator[str]:
    """The answer, and a line for each build."""
    sure = "" if answer.sure else "not sure: "
    if answer.first is None or answer.last is None:
        yield f"{sure}none of these builds shows it ({answer.chance:.2f})"
    else:
        came = (
            f"in the first of them, {names[0]}"
            if answer.first == 0
            else f"between {names[answer.first - 1]} and {names[answer.first]}"
        )
        went = (
            "in none up to the last"
            if answer.last == len(names) - 1
            else f"between {names[answer.last]} and {names[answer.last + 1]}"
        )
        yield f"{sure}it came {came if answer.first else 'before or ' + came}; it went {went} ({answer.chance:.2f})"
    for name, chance, (shown, runs) in zip(names, answer.by_build, answer.counts, strict=True):
        seen = describe(shown, runs) if runs else "not run"
        yield f"  {name:<10} has it with a chance of {chance:.2f}; shown in {seen}"
