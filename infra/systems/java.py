"""Java servers on nodes: where their files lie, and the command line that starts one."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from infra.machines.api import InfraError, Node, NodeUnreachable

DATA: Final = "/var/lib/harness/data"
"""All of a server's data, and nothing else: a file system of its own may be mounted here."""

LOG: Final = "/var/lib/harness/log"
"""Server log, GC logs, crash reports and settings: what `collect` takes."""

LIB: Final = "/opt/harness/lib"
SERVER_LIB: Final = "/opt/harness/server"
USER_LIB: Final = "/opt/harness/user-lib"

TMP: Final = "/var/lib/harness/tmp"
"""Native libraries that a server unpacks for itself (RocksDB's, 10 MB a start): a killed one leaves them behind."""

NO_PERF_FILE: Final = "-XX:+PerfDisableSharedMem"
"""Or every JVM makes `/tmp/hsperfdata_USER/PID`, which only an orderly end removes."""


def options(gc_log: str) -> dict[str, str]:
    """What every JVM gets besides its heap, each option with its reason. `gc_log`: name of its file in `LOG`."""
    return {
        "-XX:+UseSerialGC": "the other collectors' threads cost more than they give with so small a heap",
        "-XX:TieredStopAtLevel=1": "ready a third sooner; the second compiler never pays within a run of minutes",
        "-XX:+ExitOnOutOfMemoryError": (
            "the heap is small by our choice: a process that is gone, with a line in its log, is an honest finding; "
            "one that lives on with some of its threads dead is not the server's behaviour but ours"
        ),
        NO_PERF_FILE: "the JVM's statistics stay out of /tmp, where a killed one would leave them for good",
        f"-Djava.io.tmpdir={TMP}": "what a killed server leaves behind goes with the rest of it, not left in /tmp",
        f"-XX:ErrorFile={LOG}/hs_err_%p.log": "a crash of the JVM is evidence",
        f"-Xlog:gc*:file={LOG}/{gc_log}:time,uptime:filecount=5,filesize=2m": (
            "pauses of the collector explain lost leaderships; a restart moves the old file aside"
        ),
        "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED": "dropping a mapped file needs it from JDK 16 on",
        "--add-opens=java.base/java.nio=ALL-UNNAMED": (
            "the same; without, the first snapshot of DLedger that drops one stops the node's applies for good"
        ),
    }


LOGGING: Final = (
    "-Dorg.slf4j.simpleLogger.logFile=System.out",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
)
"""slf4j-simple's settings: each line is stamped with the time and its thread."""


_FRAME: Final = re.compile(r"\s+(at |\.\.\. \d+ more)")
_POLL_S: Final = 0.2


@dataclass(frozen=True)
class Launch:
    """What a server is started under: environment, and a command in front of `java` that ends in running its arguments
    (say libfaketime's). Neither: plain.
    """

    env: Mapping[str, str] = field(default_factory=dict)
    wrapper: Sequence[str] = ()


def java(
    main: str, args: Sequence[str], *, class_path: Sequence[str], options: Sequence[str], launch: Launch
) -> list[str]:
    """The argv of a server. `class_path`: folders of jars on the node, the first wins."""
    jars = ":".join(f"{folder}/*" for folder in class_path)
    return [*launch.wrapper, "java", *options, "-cp", jars, main, *args]


def end(node: Node, pidfile: str, timeout_s: float, what: str) -> None:
    """SIGTERM, SIGKILL after three quarters of the time. Raises InfraError for a process that outlives both."""
    deadline = time.monotonic() + timeout_s
    for signal, until in (("TERM", deadline - timeout_s / 4), ("KILL", deadline)):
        running = node.process(pidfile)
        if running is None:
            return
        node.run(["kill", "-s", signal, str(running.pid)], check=False)
        while node.process(pidfile) == running and time.monotonic() < until:
            time.sleep(_POLL_S)
    if node.process(pidfile) is not None:
        raise InfraError(f"{node.name}: {what} is still there {timeout_s:.0f} s after it was told to end")


def java_version(node: Node) -> str:
    """The first line of `java -version` on a node. Raises InfraError where there is none."""
    said = node.run(["java", NO_PERF_FILE, "-version"], check=False)
    if said.code != 0:
        raise InfraError(f"{node.name}: there is no working java; install a JRE of version 17 there")
    return said.stderr.decode(errors="replace").splitlines()[0]


def last_lines(node: Node, log: str, count: int = 5) -> str:
    """The end of a log on a node, in one line, for error messages. Frames of stack traces are left out: they would
    crowd out what went wrong. Never raises.
    """
    try:
        done = node.run(["tail", "-n", "100", "--", log], check=False)
    except NodeUnreachable as e:
        return f"(its log cannot be read: {e})"
    lines = [line.strip() for line in done.text.splitlines() if line.strip() and not _FRAME.match(line)][-count:]
    return " | ".join(line[:200] for line in lines) or "(its log is empty)"
