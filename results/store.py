# SPDX-License-Identifier: Apache-2.0
"""The store: finds and reads runs.

    <root>/latest -> <name>/<time>            the newest run
    <root>/<name>/latest -> <time>            the newest of its kind; <name> is `<workload>-<nemesis>`
    <root>/<name>/2026-11-21T06-12-44/        a run (`-2`, `-3`, ... when the second is taken)
        plan.toml  environment.json  deployment.json  history.parquet  observations.jsonl  control.jsonl
        verdict.json  report.html  junit.xml  harness.log  machine.log  plots/  nodes/<node>/

During the run the history is `journal.jsonl`. It goes when the sealed history was read back and has the same ops.
Every reader here accepts a run in any state: active, killed, or copied in part.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from results import machine
from results.deployment import FILE as DEPLOYMENT
from results.deployment import DeploymentRecord, of_old_run, read_deployment
from results.durable import link, sync_folder, write_text
from results.errors import HistoryError, StoreError, cannot_write, in_bytes
from results.history import History
from results.journal import read_journal
from results.machine import read_machine
from results.observations import read_observations
from results.op import Op
from results.permission import permissions_of
from results.reading import exists, read_json, read_toml
from results.record import COMPLETE, Observation, RunRecord
from results.verdict import Verdict

__all__ = ["MIN_FREE", "HistoryError", "RunDir", "RunSummary", "Store", "StoreError", "load"]

MIN_FREE: Final = 100 * 1024 * 1024
"""Bytes that must be free before a run is begun: a long history with every node's logs."""

_TIME: Final = "%Y-%m-%dT%H-%M-%S"
_RUN_NAME: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d)(?:-(\d+))?")
_SAFE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+,=@-]{0,199}")
_LATEST: Final = "latest"
NOTE: Final = "history"
"""The fact of an environment that says what is special about the source of the history."""
_IDS: Final = ("begun_at", "started_at")
"""Facts of the environment that no two runs share."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunDir:
    """A run's folder. The properties name its files, which need not exist."""

    path: Path

    @property
    def plan(self) -> Path:
        return self.path / "plan.toml"

    @property
    def deployment(self) -> Path:
        """The deployment record: the servers and their nodes."""
        return self.path / DEPLOYMENT

    @property
    def environment(self) -> Path:
        return self.path / "environment.json"

    @property
    def journal(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def history(self) -> Path:
        """The sealed history."""
        return self.path / "history.parquet"

    @property
    def observations(self) -> Path:
        return self.path / "observations.jsonl"

    @property
    def machine(self) -> Path:
        """The resources of the control program's own machine; those of the nodes are among their logs."""
        return self.path / machine.FILE

    @property
    def verdict(self) -> Path:
        return self.path / "verdict.json"

    @property
    def control(self) -> Path:
        """The commands run on each node, with exit code and duration."""
        return self.path / "control.jsonl"

    @property
    def nodes(self) -> Path:
        """The folder with one folder per node: its logs."""
        return self.path / "nodes"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def junit(self) -> Path:
        return self.path / "junit.xml"

    @property
    def log(self) -> Path:
        """The control program's own log."""
        return self.path / "harness.log"

    @property
    def plots(self) -> Path:
        return self.path / "plots"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds a lock on the folder while the run is under way, so that nobody removes it (`results.retention`). The
        kernel frees it when the process ends. A file system without locks has none.
        """
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            yield
        finally:
            os.close(fd)

    def load(self) -> RunRecord:
        """The run's record, with the sealed history if it is whole, else the journal (a killed run has only that).

        If a part was left out or another source was used, `environment["history"]` describes it.
        Raises HistoryError if no run is there, if it has no history, or if that is broken in the middle.
        """
        if not self.path.is_dir():
            raise HistoryError(self.path, None, "no such run; a folder of the store is right, <store>/<name>/<time>")
        environment = _read_environment(self.environment)
        plan = _read_plan(self.plan)
        history, note = self._history(environment, plan)
        if note:
            log.warning("%s: %s", self.path, note)
            environment[NOTE] = note
        logs = self._logs()
        return RunRecord(
            history=history,
            plan=plan,
            environment=environment,
            deployment=self._deployment(plan),
            observations=self._observations(),
            logs=logs,
            machine=read_machine(self.machine, logs, environment),
            path=self.path,
        )

    def seal(self, record: RunRecord) -> None:
        """Writes the sealed history from a loaded record, with plan and environment in the file's metadata.

        The journal stays (`drop_journal`). Raises StoreError if it cannot be written.
        """
        # Imported here and below: Arrow takes longer to load than a small history takes to check.
        from results.sealed import seal

        facts = {"plan": dict(record.plan), "environment": dict(record.environment)}
        metadata = {name: json.dumps(data, default=str) for name, data in facts.items()}
        seal(record.history, self.history, {**metadata, "run": f"{self.path.parent.name}/{self.path.name}"})

    def drop_journal(self, record: RunRecord) -> bool:
        """Removes the journal of a complete run, if its sealed history, read back from the disk, has the same ops.
        record: the one that was sealed, read from the journal. Returns False if the journal stays.
        """
        from results.sealed import iterate_sealed

        if NOTE in record.environment or record.environment.get("phases") != COMPLETE or not exists(self.journal):
            return False
        try:
            pairs = zip_longest(iterate_sealed(self.history), record.history)
            if any(sealed != journalled for sealed, journalled in pairs):
                log.warning("%s: the sealed history differs from the journal, which stays", self.path)
                return False
            self.journal.unlink()
            sync_folder(self.path)
        except (HistoryError, OSError) as problem:
            log.warning("%s: the journal stays: %s", self.path, problem)
            return False
        return True

    def _history(self, environment: Mapping[str, Any], plan: Mapping[str, Any]) -> tuple[History, str | None]:
        note = None
        if self.history.exists():
            from results.sealed import read_sealed, sealed_metadata

            try:
                other = _other_run(sealed_metadata(self.history), self.path, environment, plan)
            except HistoryError:
                other = None  # a damaged file: see below
            if other is not None:
                raise HistoryError(self.history, None, f"it is the history of another run, {other}")
            try:
                return History(read_sealed(self.history)), None
            except HistoryError as problem:
                if not self.journal.exists():
                    raise
                note = f"read from the journal, since {problem}"
        if not self.journal.exists():
            raise HistoryError(
                self.path, None, "neither history.parquet nor journal.jsonl: the run ended before its first operation"
            )
        ops: list[Op]
        ops, torn = read_journal(self.journal)
        return History(ops), "; ".join(filter(None, (note, torn))) or None

    def load_deployment(self) -> DeploymentRecord:
        """The deployment record: the servers and their nodes. Raises HistoryError."""
        return self._deployment(_read_plan(self.plan))

    def _deployment(self, plan: Mapping[str, Any]) -> DeploymentRecord:
        if exists(self.deployment):
            return read_deployment(self.deployment)
        return of_old_run(plan)

    def _observations(self) -> list[Observation]:
        return read_observations(self.observations)

    def _logs(self) -> dict[str, list[Path]]:
        """Node -> the regular files below `nodes/<node>/`; links are never followed."""
        found: dict[str, list[Path]] = {}
        if self.nodes.is_dir() and not self.nodes.is_symlink():
            for node in sorted(p for p in self.nodes.iterdir() if p.is_dir() and not p.is_symlink()):
                files = (Path(where) / name for where, _, names in os.walk(node) for name in names)
                found[node.name] = sorted(f for f in files if f.is_file() and not f.is_symlink())
        return found


def load(path: Path) -> RunRecord:
    """`RunDir(path).load()`."""
    return RunDir(path).load()


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One line of a list of runs.

    name     `<workload>-<nemesis>`.
    verdict  None: not written (yet); `reason` then says so.
    known    ids of the findings that explain anomalies of the run. new: names of those that none explains; None:
             they were not compared with the findings.
    broken   True if the run's verdict exists but cannot be read.
    """

    path: Path
    name: str
    time: datetime
    verdict: Verdict | None
    reason: str
    broken: bool = False
    known: tuple[int, ...] = ()
    new: tuple[str, ...] | None = None


class Store:
    """All runs below one folder. `create` begins a run, `runs` lists them."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def create(self, name: str, plan_toml: str, now: datetime) -> RunDir:
        """A new run's folder with its plan, and both `latest` links on it.

        Raises StoreError, as one line, if the store cannot be written or less than `MIN_FREE` is free.
        """
        if not _SAFE_NAME.fullmatch(name) or name == _LATEST:
            raise StoreError(f"{name!r} cannot name a run's folder: letters, digits and ._+,=@- can, but 'latest'")
        try:
            (self.root / name).mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(self.root).free
            if free < MIN_FREE:
                raise StoreError(
                    f"{self.root}: only {in_bytes(free)} free, and a run needs at least {in_bytes(MIN_FREE)}; "
                    f"make room, or name another folder with --store"
                )
            run = RunDir(_new_folder(self.root / name, now.strftime(_TIME)))
            run.nodes.mkdir()
            sync_folder(run.path.parent)
        except OSError as problem:
            raise cannot_write(self.root / name, "the store", problem) from None
        write_text(run.plan, plan_toml, "the plan")
        link(self.root / name / _LATEST, run.path.name)
        link(self.root / _LATEST, f"{name}/{run.path.name}")
        return run

    def runs(self) -> list[RunSummary]:
        """All runs, the newest first. Folders that are no runs are skipped; a store that does not exist has no runs."""
        found: list[tuple[datetime, int, RunSummary]] = []
        for kind in real_folders(self.root):
            for folder in real_folders(kind):
                if named := _RUN_NAME.fullmatch(folder.name):
                    try:
                        when = datetime.strptime(named[1], _TIME)
                    except ValueError:
                        continue
                    found.append((when, int(named[2] or 1), _summary(folder, kind.name, when)))
        found.sort(key=lambda one: (one[0], one[1], one[2].name), reverse=True)
        return [summary for _, _, summary in found]


def _new_folder(parent: Path, stamp: str) -> Path:
    """Makes a new folder. `mkdir` fails for an existing name, so two runs begun in one second never share a folder."""
    number = 1
    while True:
        path = parent / (stamp if number == 1 else f"{stamp}-{number}")
        try:
            path.mkdir()
            return path
        except FileExistsError:
            number += 1


def real_folders(path: Path) -> list[Path]:
    """Real folders in a folder (no links: `latest` would show a run twice)."""
    try:
        return [p for p in path.iterdir() if p.is_dir() and not p.is_symlink()]
    except OSError:
        return []


def _summary(folder: Path, name: str, when: datetime) -> RunSummary:
    path = RunDir(folder).verdict
    try:
        data = read_json(path, follow=False)
        verdict, reason = Verdict(data["verdict"]), data["reason"]
        if not isinstance(reason, str):
            raise TypeError("its reason is no text")
        new = data.get("new")
        known = tuple(int(finding["id"]) for finding in data.get("known", ()))
        return RunSummary(
            folder, name, when, verdict, reason, False, known, None if new is None else tuple(map(str, new))
        )
    except FileNotFoundError:
        return RunSummary(folder, name, when, None, "no verdict: the run is still active, or was interrupted")
    except (OSError, ValueError, KeyError, TypeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else problem
        return RunSummary(folder, name, when, None, f"verdict.json cannot be read: {why}", broken=True)


def _read_plan(path: Path) -> Mapping[str, Any]:
    try:
        return read_toml(path)
    except FileNotFoundError:
        return {}
    except OSError as problem:
        raise HistoryError(path, None, f"the plan cannot be read: {problem.strerror}") from None
    except ValueError as problem:
        raise HistoryError(path, None, f"the plan cannot be read: {problem}") from None


def _other_run(
    about: Mapping[str, str], folder: Path, environment: Mapping[str, Any], plan: Mapping[str, Any]
) -> str | None:
    """The run of a sealed history, if that is another one than the folder's; None: it is this one, or unknown. A folder
    may have been moved, so its name alone decides nothing.
    """
    named = about.get("run")
    if named is None:
        return None
    try:
        sealed_environment, sealed_plan = (json.loads(about.get(key, "{}")) for key in ("environment", "plan"))
        shared = [key for key in _IDS if key in sealed_environment and key in environment]
        ids = [(sealed_environment[key], environment[key]) for key in shared]
    except (ValueError, AttributeError, TypeError):
        return named
    if ids:
        return named if any(mine != its for its, mine in ids) else None
    return None if named == f"{folder.parent.name}/{folder.name}" or sealed_plan == dict(plan) else named


def _read_environment(path: Path) -> dict[str, Any]:
    """The facts of a run; {} without such a file. Raises HistoryError if they are damaged: the run's permissions are
    among them, and decide its verdict.
    """
    try:
        data = read_json(path)
        if not isinstance(data, dict):
            raise TypeError("a JSON object is right")
        for name in ("permits", "permits_after"):
            permissions_of(data, name)
    except FileNotFoundError:
        return {}
    except OSError as problem:
        raise HistoryError(path, None, f"the environment cannot be read: {problem.strerror}") from None
    except (ValueError, TypeError) as problem:
        raise HistoryError(path, None, f"the environment is damaged: {problem}") from None
    return data
