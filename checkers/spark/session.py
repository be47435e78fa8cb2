# SPDX-License-Identifier: Apache-2.0
"""A Spark session: a new one in this process, or the one of `spark-submit`."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

from results.errors import StoreError

if TYPE_CHECKING:
    from pyspark import SparkContext

EMBEDDED: Final[Mapping[str, str]] = {
    # A short job does not need the compilers and collectors of a long one: the session starts in half of the time.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
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

    settings = SparkConf().setAppName(name)
    if not submitted():
        settings.setMaster(master)
        for key, value in EMBEDDED.items() if local else ():
            settings.setIfMissing(key, value)
    for key, value in conf.items():
        settings.set(key, value)
    log: str | None = None
    try:
        with _aside() if local else nullcontext() as log:
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


@contextmanager
def _aside() -> Iterator[str | None]:
    """Sends Java's own output, from here to its end, into a file: the user reads only the harness' lines. Yields its
    path, which is random, and readable by its owner only.
    """
    log, path = tempfile.mkstemp(prefix="harness-spark-", suffix=".log")
    sys.stderr.flush()
    ours = os.dup(2)
    os.dup2(log, 2)
    os.close(log)
    try:
        yield path
    finally:
        sys.stderr.flush()
        os.dup2(ours, 2)
        os.close(ours)


def _insist_on_parts() -> None:
    if importlib.util.find_spec("pyspark") is None:
        raise NoSpark("PySpark is not installed; `pip install rocketmq-harness[spark]` is right")
    home = os.environ.get("JAVA_HOME")
    if submitted() or (home and os.access(os.path.join(home, "bin", "java"), os.X_OK)) or shutil.which("java"):
        return
    raise NoSpark("no Java is installed, and Spark needs 17 or newer (Debian: openjdk-17-jre-headless)")
