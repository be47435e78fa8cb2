# SPDX-License-Identifier: Apache-2.0
"""Runs that several tests look at: each is made once, and no two clusters are up at one time."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cluster.real_runs import Run, run

from infra.systems.dledger import server as dledger
from infra.systems.maven import compile_jar, fetch_jars

SHORT = ("--time-limit", "12", "--interval", "20", "--duration", "2.5", "--seed", "11")
"""A full life in little time. Two nemeses strike once each, one after the other."""

COMPARES = "if (command.conditional && !Objects.equals(held, command.expect)) {"
FORGETS_TO = "if (command.conditional && held == null) {"
"""The planted bug: a compare-and-set that no longer compares."""

BORN = "this.selfId = selfId;"
MARK = "A server with a planted bug"


@pytest.fixture(scope="session")
def docker_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A full life on docker."""
    store = tmp_path_factory.mktemp("docker") / "store"
    faults = "partition-halves,hammer-time"
    return run("--cluster", "docker", "--nemesis", faults, *SHORT, "--keep-journal", store=store)


@pytest.fixture(scope="session")
def local_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A full life on local nodes."""
    store = tmp_path_factory.mktemp("local") / "store"
    faults = "kill-random-processes,crash-random-nodes,bridge"
    times = ("--time-limit", "16", "--interval", "20", "--duration", "2", "--seed", "12", "--target", "one")
    return run("--cluster", "local", "--nemesis", faults, *times, store=store)


@pytest.fixture(scope="session")
def planted_jars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A committer's own build: the register server with a bug, as a folder for `--server-jars`."""
    sources = tmp_path_factory.mktemp("planted") / "sources"
    sources.mkdir()
    for file in dledger.SOURCES.glob("*.java"):
        shutil.copy(file, sources)
    machine = sources / "RegisterMachine.java"
    text = machine.read_text()
    assert text.count(COMPARES) == text.count(BORN) == 1, "the state machine has changed: plant the bug again"
    text = text.replace(COMPARES, FORGETS_TO).replace(BORN, f'{BORN}\n        LOGGER.info("{MARK}");')
    machine.write_text(text)
    return compile_jar(sources, fetch_jars(dledger.POM, dledger.LOCK), "planted")


@pytest.fixture(scope="session")
def planted_run(planted_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A full life of that build, with JVM options and a server setting of its own."""
    store = tmp_path_factory.mktemp("planted-run") / "store"
    faults = "partition-random-node,partition-majorities-ring"
    jvm = ("--jvm-option=-Xmx170m", "--jvm-option=-XX:+PrintCommandLineFlags")
    server = ("--set", "dledger.heartBeatTimeIntervalMs=600", "--server-jars", planted_jars)
    return run("--cluster", "local", "--nemesis", faults, *SHORT, *jvm, *server, store=store)
