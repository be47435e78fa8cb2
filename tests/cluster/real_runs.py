# SPDX-License-Identifier: Apache-2.0
"""The installed `harness` command as a user runs it, and what its runs leave: in the store, and on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import docker

from infra.machines.backends.containers import RUN
from infra.machines.ownership import Owner, digest, is_alive, slug
from results.cache import cache_dir
from results.errors import HistoryError
from results.journal import read_journal
from results.op import NEMESIS, Op
from results.store import RunDir

HARNESS = Path(sys.executable).with_name("harness")
"""The command that `pip install` put beside this Python."""

PATIENCE_S = 240.0
"""After this a test that hangs is a test that failed; nothing here is expected to take nearly as long."""


def until(true: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait for what must happen."""
    deadline = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < deadline, f"it did not happen: {what}"
        time.sleep(0.1)


class Going:
    """A `harness` command that was started; its output goes to files, so that it never waits for a reader.

    `store`: where this process finds the store. `output`: what the files with the output are called.
    """

    def __init__(self, argv: Sequence[str | Path], store: Path, output: Path) -> None:
        self.store = store
        self._said = output.with_suffix(".out"), output.with_suffix(".err")
        with self._said[0].open("wb") as out, self._said[1].open("wb") as err:
            # A session of its own: a Ctrl-C reaches a whole process group, and must reach only this one. What a shell
            # starts in the background is deaf to it from birth, and so would be all that we start in turn.
            self.process = subprocess.Popen(
                ["env", "--default-signal=INT,TERM,HUP", *(str(word) for word in argv)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    @property
    def out(self) -> str:
        return self._said[0].read_text()

    @property
    def err(self) -> str:
        return self._said[1].read_text()

    @property
    def folder(self) -> RunDir:
        """The run's folder, which is there soon after the start."""
        until(lambda: (self.store / "latest").exists() or self.ended, "a folder in the store")
        return self._latest()

    def _latest(self) -> RunDir:
        # Not `resolve`: the store may be seen through /proc/PID/root, a link that leads elsewhere.
        return RunDir(self.store / (self.store / "latest").readlink())

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def environment(self) -> dict[str, str]:
        """The facts that the run recorded about itself, which exist when the servers are about to be started."""
        found: dict[str, str] = {}

        def noted() -> bool:
            assert not self.ended, f"the run ended before its servers were started: {self.out}{self.err}"
            with suppress(OSError, ValueError):  # not there yet, or not all of it
                found.update(json.loads(self.folder.environment.read_text()))
            return bool(found)

        until(noted, "the environment is noted")
        return found

    def ops(self) -> list[Op]:
        """The ops that are journalled by now, or those of the sealed history of a run that has ended."""
        folder = self.folder
        with suppress(HistoryError):  # the journal goes when the history is sealed
            if folder.journal.exists():
                return read_journal(folder.journal)[0]
        return list(folder.load().history) if folder.history.exists() else []

    def strike(self, number: int) -> Op:
        """Wait until the n-th strike is in force (its effect seen, and not healed yet), and give its `inject`."""
        found: list[Op] = []

        def in_force() -> bool:
            assert not self.ended, f"the run ended before strike {number}: {self.out}{self.err}"
            found[:] = [op for op in self.ops() if is_inject(op) and op.value["id"] == number]
            return bool(found)

        until(in_force, f"strike {number}")
        assert found[0].value["seen"], found[0]
        return found[0]

    def kill(self) -> Run:
        """`kill -9` of the control program alone."""
        self.process.kill()
        return self.wait()

    def ctrl_c(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)

    def wait(self, patience_s: float = PATIENCE_S) -> Run:
        code = self.process.wait(patience_s)
        return Run(code, self.out, self.err, self._latest() if (self.store / "latest").exists() else None)


@contextmanager
def going(
    *args: str | Path, store: Path, seen: Path | None = None, wrapper: Sequence[str] = (), output: Path | None = None
) -> Iterator[Going]:
    """`harness run ARGS --store STORE`, started; on the small DLedger group where ARGS name nothing else. However the
    test ends, the command has ended too.

    `seen`: where this process finds the store, when `wrapper` shows the command another file system. `output`: what the
    files with the output are called, where several runs have one store.
    """
    dledger = () if {"--workload", "--plan", "--topology"}.intersection(args) else ("--workload", "register")
    run = Going([*wrapper, HARNESS, "run", *dledger, *args, "--store", store], seen or store, output or store)
    try:
        yield run
    finally:
        if not run.ended:
            run.ctrl_c()
            try:
                run.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                run.kill()


@dataclass(frozen=True)
class Run:
    """A `harness run` that has ended; `folder` is None where it ended before it had one."""

    code: int
    out: str
    err: str
    folder: RunDir | None

    @property
    def dir(self) -> RunDir:
        assert self.folder is not None, self.err
        return self.folder

    @cached_property
    def ops(self) -> list[Op]:
        return list(self.dir.load().history)

    @property
    def verdict(self) -> dict[str, Any]:
        """`verdict.json` as it is now."""
        data: dict[str, Any] = json.loads(self.dir.verdict.read_text())
        return data

    @cached_property
    def environment(self) -> dict[str, str]:
        facts: dict[str, str] = json.loads(self.dir.environment.read_text())
        return facts

    def results(self) -> dict[str, dict[str, Any]]:
        """Checker -> its verdict, reason and anomalies in `verdict.json`: all but how long it took over what."""
        measured = ("ms", "stats")
        return {r["checker"]: {k: v for k, v in r.items() if k not in measured} for r in self.verdict["results"]}

    def stats(self, checker: str) -> dict[str, Any]:
        """The `stats` of a checker in `verdict.json`."""
        return next(dict(r["stats"]) for r in self.verdict["results"] if r["checker"] == checker)


def is_inject(op: Op) -> bool:
    """An injection that is done (its completion)."""
    return op.process == NEMESIS and op.f == "inject" and op.type != "invoke"


def harness(
    *args: str | Path, env: Mapping[str, str] | None = None, wrapper: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """A `harness` command to its end."""
    argv = [*wrapper, *(str(word) for word in (HARNESS, *args))]
    return subprocess.run(
        argv, capture_output=True, text=True, timeout=PATIENCE_S, env={**os.environ, **(env or {})}, check=False
    )


def run(*args: str | Path, store: Path) -> Run:
    """`harness run ARGS --store STORE` to its end."""
    with going(*args, store=store) as started:
        return started.wait()


def nodes_of(facts: Mapping[str, str]) -> list[Owner]:
    """Every process that runs on a run's nodes now. `facts` is the run's environment."""
    if facts["backend"] == "docker":
        with closing(docker.from_env()) as client:
            containers = client.containers.list(filters={"label": f"{RUN}={facts['run_id']}"})
            pids = [int(row[1]) for c in containers for row in c.top()["Processes"]]
    else:
        pids = _descendants(int(facts["switch"]))
    return [owner for pid in pids if (owner := Owner.of(pid)) is not None]


def left_of(facts: Mapping[str, str], processes: Sequence[Owner] = ()) -> list[str]:
    """The remains of a run on this machine: containers, networks, links, mounts, control groups, folders, processes.

    `processes`: those that ran on its nodes while they lived.
    """
    run_id = facts["run_id"]
    found = [f"process {owner.pid}" for owner in processes if is_alive(owner)]
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if run_id.encode() in path.read_bytes():
                found.append(f"{path}: {path.read_bytes().replace(bytes(1), b' ').decode(errors='replace')}")
    mounts = Path("/proc/self/mountinfo").read_text()
    found += [line for line in mounts.splitlines() if slug(run_id) in line]
    found += [f"link {p.name}" for p in Path("/sys/class/net").iterdir() if digest(run_id)[:8] in p.name]
    found += [str(path) for path in (cache_dir() / "local").glob(f"*{slug(run_id)}*")]
    found += [group for group, *_ in os.walk("/sys/fs/cgroup") if f"harness-{digest(run_id)[:8]}-" in group]
    if facts["backend"] == "docker":
        label = {"label": f"{RUN}={run_id}"}
        with closing(docker.from_env()) as client:
            # The lists alone, without a look at each: they may be going right now.
            found += [f"container {c['Names']}" for c in client.api.containers(all=True, filters=label)]
            found += [f"network {n['Name']}" for n in client.api.networks(filters=label)]
    return found


def _descendants(pid: int) -> list[int]:
    """A process, its children, theirs, and so on."""
    with suppress(OSError):
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(word) for task in tasks for word in (task / "children").read_text().split()]
        return [pid, *(below for child in children for below in _descendants(child))]
    return []
