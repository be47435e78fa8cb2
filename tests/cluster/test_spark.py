# SPDX-License-Identifier: Apache-2.0
"""`harness batch` on real Spark: in this process, behind a URI, and on a standalone cluster on which things die."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.batch import long
from benchmarks.batch.generate import generate
from checkers.spark import keys
from checkers.spark.session import end, start
from harness.batch import input as batch_input
from harness.batch.run import BatchPlan, check_on
from harness.check.examine import examine
from harness.check.report import CheckOptions
from results.verdict import Verdict, worst
from results.verdict_table import RECEIPTS, read_verdicts

ROOT = Path(__file__).parent.parent.parent
BIN = Path(sys.executable).parent
PATIENCE_S = 1800
"""A machine that does much else at the same time is slow, and not wrong."""

pytestmark = pytest.mark.slow

SECRETS = {
    "fs.s3a.access.key": "AKIA-pl4nted",
    "fs.s3a.secret.key": "s3cret-pl4nted",
    "fs.s3a.session.token": "t0k-pl4nted",
}
SECRET = tuple(word for name, value in SECRETS.items() for word in ("--conf", f"spark.hadoop.{name}={value}"))
"""A secret of the user's configuration, which must be in no log."""

SMALL = ("--conf", "spark.executor.memory=512m", "--conf", "spark.driver.host=127.0.0.1", "--driver-memory", "512m")


def found(output: Path) -> dict[str, Verdict]:
    by_run: dict[str, list[str]] = {}
    for row in read_verdicts(output, ["run", "verdict"]).to_pylist():
        by_run.setdefault(row["run"], []).append(row["verdict"])
    return {run: worst(map(Verdict, words)) for run, words in by_run.items()}


def shown(folder: Path, *texts: str) -> str:
    """All that was written below a folder by a job and a cluster, and said by it."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".parquet", ".jar")]
    return "".join([*texts, *(path.read_bytes().decode("utf-8", "replace") for path in files)])


def truth(folder: Path) -> dict[str, Verdict]:
    """Of generated histories."""
    invalid = np.load(folder / "invalid.npy")
    return {f"h{i:07}": Verdict.INVALID if bad else Verdict.VALID for i, bad in enumerate(invalid.tolist())}


def environment() -> dict[str, str]:
    return {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}


def corpus(folder: Path) -> dict[str, Verdict]:
    """Some real histories of both verdicts, and one that cannot be read: what `harness check` says of each."""
    folder.mkdir()
    for path in sorted((ROOT / "tests/data/porcupine").glob("etcd_*.log")):
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "a b").mkdir()
    (folder / "a b" / "a, b {c}*.edn").write_text("[{:process 0, :type :invoke, :f :read}\n {:process 0")
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): examine(path, path.name, None, CheckOptions()).verdict for path in files}


def test_in_this_process_and_behind_a_uri(tmp_path: Path) -> None:
    """`viewfs:` is a file system of Hadoop's like any other: it only shows another one under names of its own."""
    expected = corpus(tmp_path / "corpus")
    worst_code = worst(expected.values()).exit_code
    mounts = [
        "--conf", f"spark.hadoop.fs.viewfs.mounttable.here.link./in=file://{tmp_path}/corpus",
        "--conf", f"spark.hadoop.fs.viewfs.mounttable.here.link./out=file://{tmp_path}/remote",
    ]  # fmt: skip
    (tmp_path / "remote").mkdir()
    command = [BIN / "harness", "batch", "--master", "local[2]", "--portion-s", "0.001"]
    (tmp_path / "tmp").mkdir()
    for _ in range(2):
        argv = [*command, *mounts, *SECRET, "--input", "viewfs://here/in", "--output", "viewfs://here/out/table"]
        env = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=env)
        assert "pl4nted" not in shown(tmp_path, done.stdout, done.stderr)
        assert (done.returncode, done.stderr) == (worst_code, "")
    assert f"{len(expected)} done before, 0 to check" in done.stdout
    assert found(tmp_path / "remote" / "table") == expected
    argv = [*command, "--input", str(tmp_path / "corpus"), "--output", str(tmp_path / "local")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stderr) == (worst_code, "")
    assert found(tmp_path / "local") == expected
    [broken] = [row for row in read_verdicts(tmp_path / "remote" / "table").to_pylist() if row["checker"] == "reader"]
    assert broken["reason"].startswith("viewfs://here/in/a b/a, b {c}*.edn:2: ")
    # A file system that is not there is named, and what would get into it is not.
    argv = [*command, *SECRET, "--input", "s3a://bucket/runs", "--output", str(tmp_path / "s3")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert "s3a://bucket/runs: this Spark has no file system for s3a:, its jar is missing" in done.stderr


@contextmanager
def standalone(folder: Path, *options: str | Path) -> Iterator[dict[str, Any]]:
    command = [sys.executable, ROOT / "scripts/spark-standalone", "--folder", folder, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as cluster:
        try:
            assert cluster.stdout is not None
            line = cluster.stdout.readline()
            assert line, "the cluster did not come up"
            yield json.loads(line)
        finally:
            cluster.terminate()


@contextmanager
def submitted(master: str, *arguments: str | Path, log: Path) -> Iterator[subprocess.Popen[str]]:
    """`spark-submit` of a batch, in a process group of its own."""
    # Spark is asked to log its configuration: so one sees that what is not in the log could have been there.
    logged = (*SECRET, "--conf", "spark.logConf=true")
    command = [BIN / "spark-submit", "--master", master, *SMALL, *logged, ROOT / "checkers/spark/batch.py", *arguments]
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment(), start_new_session=True
        ) as job,
    ):
        try:
            yield job
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)


def until_receipts(output: Path, job: subprocess.Popen[str], count: int = 1) -> None:
    """Waits until a part of the job is written. Fails when the job ends before."""
    until = time.monotonic() + PATIENCE_S
    while len(list((output / RECEIPTS).glob("*.jsonl"))) < count:
        assert job.poll() is None, "the job ended before anything could happen to it"
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_huge_history_is_sent_on_by_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real workers, which share nothing with the driver: each key has its true verdict, and the history one."""
    monkeypatch.setattr(long, "AT_ONCE", 10)  # keys, and row groups of their own
    for name, value in (("HUGE", 1_000), ("LONG", 1_000), ("SMALL", 0)):
        monkeypatch.setattr(batch_input, name, value)
    for name, value in (("ROWS", 3_000), ("PROCESS_ROWS", 5_000), ("GROUPS", 1)):
        monkeypatch.setattr(keys, name, value)
    bad = long.generate_one(tmp_path / "h.parquet", 50, 200, 0.1, seed=3)
    reply: list[str] = []
    context = start("local[2]", {}, "huge")
    try:
        plan = BatchPlan([str(tmp_path / "h.parquet")], str(tmp_path / "out"), CheckOptions(jit=False), "cas-register")
        code = check_on(lambda: context, plan, reply.append)
    finally:
        end(context)
    rows = read_verdicts(tmp_path / "out", ["key", "verdict"]).to_pylist()
    judged = {row["key"]: row["verdict"] for row in rows if row["key"] is not None}
    assert judged == {f"k{number}": "invalid" if one else "valid" for number, one in enumerate(bad.tolist())}
    assert (code, bad.any()) == (1, True)
    assert any("1 history: 1 invalid" in line for line in reply)


@pytest.mark.nightly
def test_a_cluster_on_which_a_worker_and_a_driver_die(tmp_path: Path) -> None:
    generate(tmp_path / "made", 6_000, (50, 200), 0.01, seed=3)
    histories, expected = tmp_path / "made" / "ops", truth(tmp_path / "made")
    arguments = ["--input", str(histories), "--portion-s", "0.02", "--output"]
    with standalone(tmp_path / "cluster") as cluster:
        # A driver is killed, and its job is called again: what was written is not checked again.
        output = tmp_path / "driver"
        with submitted(cluster["master"], *arguments, output, log=tmp_path / "driver.log") as job:
            until_receipts(output, job)
            os.killpg(job.pid, signal.SIGKILL)
        kept = found(output)
        assert 0 < len(kept) < len(expected)
        with submitted(cluster["master"], *arguments, output, log=tmp_path / "driver-2.log") as job:
            reply, _ = job.communicate(timeout=PATIENCE_S)
        assert job.returncode == 1, reply
        assert " 0 done before" not in reply
        assert found(output) == expected
        # A worker is killed, with everything that runs on it.
        output = tmp_path / "worker"
        with submitted(cluster["master"], *arguments, output, log=tmp_path / "worker.log") as job:
            until_receipts(output, job)
            for pid in family(cluster["pids"]["worker-1"]):
                os.kill(pid, signal.SIGKILL)
            reply, _ = job.communicate(timeout=PATIENCE_S)
        assert job.returncode == 1, reply
        assert found(output) == expected
    logs = shown(tmp_path, reply)
    assert "spark.hadoop.fs.s3a.secret.key" in logs
    assert "pl4nted" not in logs


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(descendant for child in children for descendant in family(int(child)))]


PACKAGES = ("rocketmq_harness", "harness", "nemesis", "checkers", "workloads", "infra", "results")


@pytest.mark.nightly
def test_a_clean_environment_is_shipped_as_the_document_says(tmp_path: Path) -> None:
    """The lines of docs/batch.md in a folder of their own, with nothing of this checkout's environment on the path."""
    source = tmp_path / "source"
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("runs", "__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    text = (ROOT / "docs/batch.md").read_text("utf-8").partition("**Shipping the package**")[2]
    block = text.partition("```console\n")[2].partition("```")[0].replace("\\\n", "")
    install, pack, submit = [line.removeprefix("$ ") for line in block.splitlines()]
    clean = {name: value for name, value in os.environ.items() if not re.match("PYTHON|PYSPARK|SPARK|VIRTUAL", name)}
    clean |= {"PATH": f"{sys.base_prefix}/bin:/usr/bin:/bin", "SPARK_LOCAL_IP": "127.0.0.1"}
    if java := shutil.which("java"):
        clean["PATH"] += f":{Path(java).parent}"

    def run(line: str, expected: int = 0) -> None:
        done = subprocess.run(
            line, shell=True, cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == expected, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"

    assert "'.[spark]'" in install
    run(install.replace(".[spark]", f"{source}[spark]"))
    run(pack)
    expected = corpus(tmp_path / "corpus")
    # An executor asks for a gigabyte where nobody says how much.
    options = ("--python", tmp_path / "ship/bin/python", "--memory", "1g")
    with standalone(tmp_path / "cluster", *options) as cluster:
        line = submit.replace("spark://host:7077", cluster["master"])
        line = line.replace("--input ... --output ...", f"--input {tmp_path}/corpus --output {tmp_path}/out")
        run(line, worst(expected.values()).exit_code)
    assert found(tmp_path / "out") == expected
