# SPDX-License-Identifier: Apache-2.0
"""A Spark session: a new one in this process, or the one of `spark-submit`."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from results.cache import cache_dir
from results.errors import CacheError, StoreError

if TYPE_CHECKING:
    from pyspark import SparkContext

_OPTIONS: Final = "spark.driver.extraJavaOptions"

EMBEDDED: Final[Mapping[str, str]] = {
    # A short job does not need the compilers and collectors of a long one: the session starts in half of the time.
    _OPTIONS: "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.driver.memory": "512m",
    # The harness must not open a view of the job to every browser that can reach this machine.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""Settings for a session in this process (`local[...]`)."""


class NoSpark(StoreError):
    """Spark cannot be used here. One line: the reason, and the remedy."""


def submitted() -> bool:
    """True if `spark-submit` started this process, and so has chosen the master."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def start(master: str, conf: Mapping[str, str], name: str) -> SparkContext:
    """The session's context. Under `spark-submit` its master and its settings stand, and `master` is ignored.

    `conf` overrides all settings. Raises NoSpark if PySpark or Java are missing, or Spark refuses.
    """
    _insist_on_parts()
    # Without this the workers run the `python3` of the PATH, which has neither PySpark nor the harness.
    if not submitted():
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    local = master.startswith("local") and not submitted()
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    settings = SparkConf().setAppName(name)
    if not submitted():
        settings.setMaster(master)
        for key, value in EMBEDDED.items() if local else ():
            settings.setIfMissing(key, value)
    for key, value in conf.items():
        settings.set(key, value)
    log: str | None = None
    try:
        if local and SparkContext._gateway is None:
            if settings.get(_OPTIONS) == EMBEDDED[_OPTIONS]:
                settings.set(_OPTIONS, EMBEDDED[_OPTIONS] + _classes())
            # What Java writes on stderr until it ends goes into a file: the user reads only the harness' lines.
            file, log = tempfile.mkstemp(prefix="harness-spark-", suffix=".log")
            with os.fdopen(file, "wb") as stderr:
                gateway = launch_gateway(settings, {"stderr": stderr})  # type: ignore[no-untyped-call]
            context = SparkContext(conf=settings, gateway=gateway)
        else:
            context = SparkContext.getOrCreate(settings)
    except (Py4JError, PySparkException) as problem:
        lines = [line for line in str(problem).splitlines() if line.strip() and not line.lstrip().startswith("at ")]
        what = lines[-1].strip() if lines else type(problem).__name__
        more = f"  (all of it: {log})" if log else ""
        raise NoSpark(f"Spark does not start on {master}: {what}{more}") from None
    if log is not None:
        os.unlink(log)  # Java continues to write to the unlinked file
    context.setLogLevel("ERROR" if local else "WARN")
    return context


class Session:
    """A session that starts in the background, while the caller lists its input."""

    def __init__(self, master: str, conf: Mapping[str, str], name: str) -> None:
        self._thread = ThreadPoolExecutor(1, "spark")
        self._context = self._thread.submit(start, master, conf, name)

    def context(self) -> SparkContext:
        """Waits for it. Raises NoSpark."""
        return self._context.result()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()
        if self._context.exception() is None:
            end(self._context.result())


def end(context: SparkContext) -> None:
    """Ends a session that `start` started. One in this process ends with its Java, for which nobody waits."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    wanted = _WANTED.pop("archive", None)
    if submitted() or gateway is None or gateway.proc is None or not str(context.master).startswith("local"):
        context.stop()
        return
    if wanted is not None:
        context.stop()
    # Without its standard input Java ends, and removes what it has on the disk. It writes the archive then.
    with suppress(OSError, Py4JError):
        gateway.shutdown()
        gateway.proc.stdin.close()
    SparkContext._active_spark_context = SparkContext._gateway = SparkContext._jvm = None
    if wanted is not None:
        with suppress(OSError, subprocess.TimeoutExpired):
            gateway.proc.wait(_WRITES_S)
            wanted.with_suffix(f".{os.getpid()}").rename(wanted)
            for other in wanted.parent.glob(f"{_ARCHIVE}-*"):
                if time.time() - other.stat().st_mtime > _UNUSED_S:
                    other.unlink()


_ARCHIVE: Final = "spark-classes"
_WRITES_S: Final = 30.0
_UNUSED_S: Final = 7 * 24 * 3600
"""An archive of another installation goes when nobody has used it for so long."""
_WANTED: dict[str, Path] = {}
"""The archive that this process' Java writes when it ends."""


def _classes() -> str:
    """Java's option for the archive of Spark's classes, which halves the start of later sessions: use it, or write it.
    Empty if there is no cache folder, or none that an option can name.

    Java ignores an archive of another Java or of other jars, and one that is cut.
    """
    import pyspark

    java = shutil.which(os.path.join(os.environ.get("JAVA_HOME") or "", "bin", "java")) or shutil.which("java") or ""
    facts = [pyspark.__version__, pyspark.__file__, os.path.realpath(java), os.stat(java).st_mtime_ns]
    try:
        archive = cache_dir() / f"{_ARCHIVE}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:12]}"
    except CacheError:
        return ""
    if re.search(r"[\s\"']", str(archive)):  # Spark would divide or change it
        return ""
    if archive.exists():
        with suppress(OSError):  # another user's
            os.utime(archive)
        return f" -Xlog:disable -XX:SharedArchiveFile={archive}"
    _WANTED["archive"] = archive
    return f" -Xlog:disable -XX:ArchiveClassesAtExit={archive.with_suffix(f'.{os.getpid()}')}"


def _insist_on_parts() -> None:
    if importlib.util.find_spec("pyspark") is None:
        raise NoSpark("PySpark is not installed; `pip install rocketmq-harness[spark]` is right")
    home = os.environ.get("JAVA_HOME")
    if submitted() or (home and os.access(os.path.join(home, "bin", "java"), os.X_OK)) or shutil.which("java"):
        return
    raise NoSpark("no Java is installed, and Spark needs 17 or newer (Debian: openjdk-17-jre-headless)")
