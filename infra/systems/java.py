# SPDX-License-Identifier: Apache-2.0
"""Java servers on nodes: the paths of their files, and the command line that starts one."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from infra.machines.api import InfraError, Node, NodeUnreachable, ProcessId, SettingsError, Share
from infra.machines.node import spawn_argv
from infra.machines.primitives.bits import FileKind
from infra.systems import class_data
from infra.systems.api import Admin, Launch, ServerSettings
from infra.systems.builds import Build, compare
from infra.systems.maven import checksum_of
from infra.systems.mends import apply, catalog
from infra.systems.mends.catalog import applied
from infra.systems.passed import once

DATA: Final = "/var/lib/harness/data"
"""All data of the servers, and nothing else: a separate file system may be mounted here."""

LOG: Final = "/var/lib/harness/log"
"""Server logs, GC logs, crash reports and settings, which `collect` fetches."""

LOOK_S: Final = 2.0
"""The pause between two checks if a starting server still runs. A check is four processes on the node, which needs its
processors for the servers; a query of a port that does not listen yet costs almost nothing.
"""

LIB: Final = "/opt/harness/lib"
SERVER_LIB: Final = "/opt/harness/server"
USER_LIB: Final = "/opt/harness/user-lib"

RUN: Final = "/var/lib/harness"
"""Pid files and locks."""

TMP: Final = "/var/lib/harness/tmp"
"""Native libraries that a server unpacks for itself (RocksDB's, 10 MB a start): a killed one leaves them behind."""

NO_PERF_FILE: Final = "-XX:+PerfDisableSharedMem"
"""Without it, every JVM makes `/tmp/hsperfdata_USER/PID`, which only an orderly end removes."""


def options(gc_log: str) -> dict[str, str]:
    """Options of every JVM besides its heap, each with its reason. `gc_log`: name of its file in `LOG`."""
    return {
        "-XX:+UseSerialGC": "the other collectors' threads cost more than they give with so small a heap",
        "-XX:TieredStopAtLevel=1": "ready a third sooner; the second compiler never pays within a run of minutes",
        "-XX:+ExitOnOutOfMemoryError": (
            "the heap is small by our choice: a process that is gone, with a line in its log, is an honest finding; "
            "one that lives on with some of its threads dead is not the server's behaviour but ours"
        ),
        NO_PERF_FILE: "the JVM's statistics stay out of /tmp, where a killed one would leave them permanently",
        f"-Djava.io.tmpdir={TMP}": "what a killed server leaves behind goes with the rest of it, not left in /tmp",
        f"-XX:ErrorFile={LOG}/hs_err_%p.log": "a crash of the JVM is evidence",
        f"-Xlog:gc*:file={LOG}/{gc_log}:time,uptime:filecount=5,filesize=2m": (
            "pauses of the collector explain lost leaderships; a restart moves the old file aside"
        ),
        "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED": "dropping a mapped file needs it from JDK 16 on",
        "--add-opens=java.base/java.nio=ALL-UNNAMED": (
            "the same; without, the first snapshot of DLedger that drops one stops the node's applies permanently"
        ),
    }


LOGGING: Final = (
    "-Dorg.slf4j.simpleLogger.logFile=System.out",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
)
"""slf4j-simple's settings: each line is stamped with the time and its thread."""


_FRAME: Final = re.compile(r"\s+(at |\.\.\. \d+ more)")
_EXCEPTION: Final = re.compile(r"\b(?:[a-z]\w*\.)+\w+(?:Exception|Error)\b")
_POLL_S: Final = 0.2


@dataclass(frozen=True)
class Program:
    """A Java program: its main class, its arguments, and the harness' JVM options.

    class_path  jars on the node, the first wins; a user's own are before them. One by one: `folder/*` stands for them
                in the order of the folder, which differs between file systems.
    archive     of the class data, on the node (`infra.systems.class_data`); None: no archive.
    """

    main: str
    args: Sequence[str]
    class_path: Sequence[str]
    options: Sequence[str]
    archive: str | None = None


class JavaServer:
    """A server in its own JVM; implements `infra.systems.api.Server`.

    `program` returns the program for the launch that is active when the server is started. label: the name of its files
    on the node, if that is not its kind: a node may have several of one.
    """

    def __init__(
        self,
        node: Node,
        kind: str,
        program: Callable[[Launch], Program],
        *,
        ports: Mapping[str, int],
        data_dirs: Sequence[str],
        files: Mapping[str, FileKind],
        launch: Launch,
        admin: Admin,
        group: str | None = None,
        label: str = "",
    ) -> None:
        self.node, self.kind, self.group, self.launch = node, kind, group, launch
        self.label = label or kind
        self.ports, self.data_dirs, self.files = ports, data_dirs, files
        self.admin = admin
        self._program = program

    def __repr__(self) -> str:
        return f"{self.node.name} {self.label}"

    @property
    def endpoint(self) -> tuple[str, int]:
        return self.node.address, self.ports[self.kind]

    @property
    def log(self) -> str:
        """The path of its log on the node."""
        return log_file(self.label)

    @property
    def pidfile(self) -> str:
        return pid_file(self.label)

    @property
    def mends(self) -> Sequence[int]:
        """Ids of the mends of its launch that are for its version."""
        return [mend.id for mend in applied(self.launch.mends, self.launch.version)]

    def start(self) -> None:
        self.node.run(self.start_command())

    def start_command(self) -> Sequence[str]:
        """The argv of the start. Run twice at once, it starts one server: `flock -o` keeps the lock from the server."""
        launch = self.launch
        program = self._program(launch)
        own = [] if launch.jars is None else [f"{user_lib(launch.jars)}/*"]
        # It holds for a class path that begins with the jars it was made of.
        archive = program.archive if not own else None
        argv = [
            *launch.wrapper,
            "java",
            *(class_data.use(archive) if archive is not None else []),
            *program.options,
            *([apply.option(apply.ON_NODE, launch.version)] if self.mends else []),
            *launch.jvm_options,
            "-cp",
            ":".join([*own, *program.class_path]),
            program.main,
            *program.args,
        ]
        spawn = spawn_argv(argv, env=launch.env, log=self.log, pidfile=self.pidfile)
        return ["flock", "-o", f"{RUN}/{self.label}.lock", *spawn]

    def stop(self, timeout_s: float = 20) -> None:
        end(self.node, self.pidfile, timeout_s, f"its {self.label}")

    def process(self) -> ProcessId | None:
        return self.node.process(self.pidfile)

    def must_run(self) -> None:
        """Raises InfraError with the end of its log if it has ended."""
        if self.process() is None:
            raise InfraError(f"{self.node.name}: the {self.label} has ended; its log: {self.last_words()}")

    def last_words(self) -> str:
        return last_lines(self.node, self.log)


class Looks:
    """Checks if starting servers still run: every `LOOK_S`, and once after the deadline (`time.monotonic()`)."""

    def __init__(self, servers: Sequence[JavaServer], deadline: float) -> None:
        self._servers, self._deadline = servers, deadline
        self._last = time.monotonic()

    def must_run(self) -> None:
        """If a check is due, raises InfraError with the end of the log of a server that has ended."""
        if time.monotonic() > min(self._last + LOOK_S, self._deadline):
            for server in self._servers:
                server.must_run()
            self._last = time.monotonic()


def log_file(kind: str) -> str:
    """The path of a server's log on its node."""
    return f"{LOG}/{kind}.log"


def pid_file(kind: str) -> str:
    """The path of the file with a server's process id on its node."""
    return f"{RUN}/{kind}.pid"


def class_path(node: Node, kind: str) -> Sequence[str]:
    """The kernel's report of a running server's class path: folders and jars. Raises InfraError if it does not run."""
    running = node.process(pid_file(kind))
    words = [] if running is None else node.run(["cat", f"/proc/{running.pid}/cmdline"], check=False).text.split("\0")
    if "-cp" not in words:
        raise InfraError(f"{node.name}: the {kind} does not run")
    return words[words.index("-cp") + 1].split(":")


def user_lib(jars: Path) -> str:
    """The path of a user's folder of jars on the nodes: there may be several, one for each build."""
    return f"{USER_LIB}/{hashlib.sha256(str(jars).encode()).hexdigest()[:12]}"


def launches(settings: ServerSettings) -> list[Launch]:
    """All possible launches of a server: the common one, and those of the rules."""
    return [settings.launch, *(rule.launch for rule in settings.rules)]


def launch_for(settings: ServerSettings, node: str, kind: str) -> Launch:
    """A server's own launch: the common one, overridden by the rules that apply to it."""
    found = settings.launch
    for rule in settings.rules:
        if rule.holds_for(node, kind):
            own = rule.launch
            found = Launch(
                version=own.version or found.version,
                jars=own.jars or found.jars,
                env={**found.env, **own.env},
                wrapper=own.wrapper or found.wrapper,
                jvm_options=[*found.jvm_options, *own.jvm_options],
                mends=found.mends,
            )
    return found


def user_shares(settings: ServerSettings) -> list[Share]:
    """The users' folders of jars that any server may be started with."""
    folders = dict.fromkeys(launch.jars for launch in launches(settings) if launch.jars is not None)
    return [Share(jars, user_lib(jars)) for jars in folders]


def mend_shares(settings: ServerSettings, jars: Mapping[str, Path]) -> list[Share]:
    """The agent with its orders, tried here on the jars of every version (version -> folder); empty without mends.

    Raises SettingsError for a mend that does not apply (to a user's build, say).
    """
    if not settings.launch.mends:
        return []
    made = apply.share(settings.launch.mends, jars)
    own = [settings.launch.jars] if settings.launch.jars is not None else []
    for version, folder in jars.items():
        if applied(settings.launch.mends, version):
            path = [*own, folder]
            once("mends", [version], [*path, made.source], partial(apply.check, made.source, version, path))
    return [made]


def describe_mends(settings: ServerSettings) -> str:
    """The text behind the version of the servers; empty without mends."""
    mends = ", ".join(map(str, settings.launch.mends))
    return f", mended: {mends}" if mends else ""


def own_builds(settings: ServerSettings, version: str, published: Callable[[str], Path]) -> list[Build]:
    """The users' jars, each folder compared with the published jars of its version. `version`: of servers that no rule
    gives another one; `published`: the folder of a version's jars. Raises SettingsError, InfraError.
    """
    versions = {launch.jars: launch.version or version for launch in launches(settings) if launch.jars is not None}
    return [compare([jars], published(number), number) for jars, number in versions.items() if jars is not None]


def describe_builds(settings: ServerSettings, builds: Sequence[Build]) -> dict[str, str]:
    """The users' jars with their checksums, their changes, and the mends, for the run's environment; empty without
    any of them.
    """
    jars = [jar for share in user_shares(settings) for jar in sorted(share.source.glob("*.jar"))]
    found = {"user_jars": " ".join(f"{jar.name}:{checksum_of(jar)}" for jar in jars)} if jars else {}
    if builds:
        found["build"] = "; ".join(build.describe() for build in builds)
        found["changed_classes"] = " ".join(sorted({name for build in builds for name in build.changed}))
    mends = " ".join(map(str, settings.launch.mends))
    return found | ({"mends": mends} if mends else {})


def require_unchanged(mends: Sequence[int], builds: Sequence[Build]) -> None:
    """Raises SettingsError for a mend of a class that differs in own jars: its effect there is unknown."""
    changed = {name for build in builds for name in build.changed}
    chosen = catalog.named(mends)
    stale = {mend.id: sorted(changed & set(mend.classes)) for mend in chosen if changed & set(mend.classes)}
    if stale:
        classes = sorted({name.rpartition(".")[2] for names in stale.values() for name in names})
        others = ",".join(mend.text for mend in chosen if mend.id not in stale)
        right = f"--mend {others} is right" if others else "no --mend is right"
        raise SettingsError(
            f"--mend {', '.join(map(str, stale))}: for {', '.join(classes)} of the published jars, and yours has other "
            f"code; {right}"
        )


def end(node: Node, pidfile: str, timeout_s: float, what: str) -> None:
    """Sends SIGTERM, SIGKILL after three quarters of the time. Raises InfraError for a process that outlives both."""
    deadline = time.monotonic() + timeout_s
    for signal, until in (("TERM", deadline - timeout_s / 4), ("KILL", deadline)):
        running = node.process(pidfile)
        if running is None:
            return
        node.run(["kill", "-s", signal, str(running.pid)], check=False)
        while node.process(pidfile) == running and time.monotonic() < until:
            time.sleep(_POLL_S)
    if node.process(pidfile) is not None:
        raise InfraError(f"{node.name}: {what} is still running {timeout_s:.0f} s after it was asked to stop")


def java_version(node: Node) -> str:
    """The first line of `java -version` on a node. Raises InfraError if the node has no Java."""
    output = node.run(["java", NO_PERF_FILE, "-version"], check=False)
    if output.code != 0:
        raise InfraError(f"{node.name}: there is no working java; install a JRE of version 17 there")
    return output.stderr.decode(errors="replace").splitlines()[0]


def last_lines(node: Node, log: str, count: int = 5) -> str:
    """The end of a log on a node, in one line, for error messages. Frames of stack traces are left out: they would
    displace the error. The last exception comes first, since a server's messages about its own shutdown hide it. Never
    raises.
    """
    try:
        done = node.run(["tail", "-n", "100", "--", log], check=False)
    except NodeUnreachable as e:
        return f"(its log cannot be read: {e})"
    lines = [line.strip() for line in done.text.splitlines() if line.strip() and not _FRAME.match(line)]
    raised = [line for line in lines[:-count] if _EXCEPTION.search(line)][-1:]
    return " | ".join(line[:200] for line in [*raised, *lines[-count:]]) or "(its log is empty)"


_NEW_LINES: Final = r"""
folder=$1 known=$2
shift 2
for file in "$folder"/*.log; do
    [ -f "$file" ] || continue
    size=$(stat -c %s -- "$file")
    from=$(printf '%s' "$known" | awk -v f="${file##*/}" -F '\t' '$1 == f { print $2 }')
    printf 'size\t%s\t%s\n' "${file##*/}" "$size"
    [ -n "$from" ] || continue
    [ "$size" -ge "$from" ] || from=0
    tail -c "+$((from + 1))" -- "$file" | head -c 4194304 | grep -aF "$@" | head -n 200
done
exit 0
"""


def new_lines(node: Node, texts: Sequence[str], seen: dict[str, int]) -> list[str]:
    """Lines of the logs in `LOG` that contain one of the texts and were written since the last call. `seen` keeps the
    position in each log; the first call only sets it. Raises InfraError.
    """
    known = "".join(f"{name}\t{size}\n" for name, size in seen.items())
    wanted = [word for text in texts for word in ("-e", text)]
    found = []
    for line in node.run(["sh", "-c", _NEW_LINES, "new-lines", LOG, known, *wanted]).text.splitlines():
        if line.startswith("size\t"):
            _, name, size = line.split("\t")
            seen[name] = int(size)
        else:
            found.append(line)
    return found
