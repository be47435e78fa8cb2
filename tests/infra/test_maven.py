# SPDX-License-Identifier: Apache-2.0
"""Jars are used only as pinned, and what is missing on the machine is said in one line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from infra.machines.api import InfraError
from infra.systems.dledger import server as dledger
from infra.systems.maven import checksum_of, compile_jar, fetch_jars, read_lock, verify


@pytest.fixture
def lib(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """Two jars, and a lock that fits them."""
    for name in ("a.jar", "b.jar"):
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path, {name: checksum_of(tmp_path / name) for name in ("a.jar", "b.jar")}


def tool(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a path that holds only the test's own tools (and `sh`, `mkdir`, `touch` by full name)."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    monkeypatch.setenv("PATH", str(bin_))
    return bin_


def pom(tmp_path: Path, lock: str) -> tuple[Path, Path]:
    (tmp_path / "pom.xml").write_text("<project/>")
    (tmp_path / "jars.toml").write_text(f"[sha256]\n{lock}\n")
    return tmp_path / "pom.xml", tmp_path / "jars.toml"


def test_jars_that_fit_the_lock(lib: tuple[Path, dict[str, str]]) -> None:
    verify(*lib)


def test_a_changed_jar_is_named(lib: tuple[Path, dict[str, str]]) -> None:
    folder, lock = lib
    (folder / "b.jar").write_bytes(b"other")
    with pytest.raises(InfraError, match=r"b\.jar: SHA-256 is .* the lock file says"):
        verify(folder, lock)


def test_a_missing_and_an_extra_jar_are_named(lib: tuple[Path, dict[str, str]]) -> None:
    folder, lock = lib
    with pytest.raises(InfraError, match=r"c\.jar is missing"):
        verify(folder, lock | {"c.jar": "0" * 64})
    with pytest.raises(InfraError, match=r"a\.jar is not in the lock"):
        verify(folder, {"b.jar": lock["b.jar"]})


@pytest.mark.parametrize(
    "text", ["", "nonsense", "[sha256]\n'a.jar' = 'short'", "[sha256]\n'a.txt' = '" + "0" * 64 + "'"]
)
def test_a_broken_lock_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "jars.toml"
    path.write_text(text)
    with pytest.raises(InfraError, match=r"jars\.toml"):
        read_lock(path)


def test_the_lock_of_the_server_pins_what_the_pom_asks_for() -> None:
    lock = read_lock(dledger.LOCK)
    requested = dledger.POM.read_text()
    assert f"<version>{dledger.VERSION}</version>" in requested
    assert f"dledger-{dledger.VERSION}.jar" in lock
    assert "slf4j-simple-1.7.36.jar" in lock
    assert len(lock) == 63


def test_no_maven(bare: Path, tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="mvn is not on the path; install Maven"):
        fetch_jars(*pom(tmp_path, ""))


def test_no_jdk(bare: Path, tmp_path: Path) -> None:
    (tmp_path / "X.java").write_text("class X {}")
    with pytest.raises(InfraError, match="javac is not on the path; install a JDK"):
        compile_jar(tmp_path, tmp_path, "x")


def test_a_failing_maven_is_told_by_its_first_error(bare: Path, tmp_path: Path) -> None:
    tool(bare, "mvn", "echo '[INFO] hello'; echo '[ERROR] no such artifact'; echo '[ERROR] more'; exit 1")
    with pytest.raises(InfraError, match=r"Maven ended with 1: \[ERROR\] no such artifact \(all of it: .*maven\.log"):
        fetch_jars(*pom(tmp_path, ""))


def test_a_fetch_that_does_not_fit_leaves_nothing_behind(bare: Path, tmp_path: Path) -> None:
    lock = f'"a.jar" = "{"0" * 64}"'
    tool(bare, "mvn", 'for arg; do case $arg in -DoutputDirectory=*) echo other > "${arg#*=}/a.jar";; esac; done')
    with pytest.raises(InfraError, match=r"a\.jar: SHA-256 is"):
        fetch_jars(*pom(tmp_path, lock))
    assert os.listdir(tmp_path / "cache" / "maven") == []


def test_a_fetch_happens_once_and_damage_is_seen_later(
    bare: Path, tmp_path: Path, lib: tuple[Path, dict[str, str]]
) -> None:
    calls = tmp_path / "calls"
    tool(
        bare,
        "mvn",
        f"echo x >> {calls}; "
        'for arg; do case $arg in -DoutputDirectory=*) printf a.jar > "${arg#*=}/a.jar";; esac; done',
    )
    files = pom(tmp_path, f'"a.jar" = "{lib[1]["a.jar"]}"')
    folder = fetch_jars(*files)
    assert fetch_jars(*files) == folder
    assert calls.read_text() == "x\n"
    (folder / "a.jar").write_text("damaged")
    with pytest.raises(InfraError, match=r"remove .* to fetch it again"):
        fetch_jars(*files)


def test_sources_that_do_not_compile_are_told_by_the_first_error(bare: Path, tmp_path: Path) -> None:
    (tmp_path / "X.java").write_text("class X {")
    tool(bare, "javac", "echo 'X.java:1: error: reached end of file while parsing' >&2; exit 1")
    tool(bare, "jar", "exit 0")
    with pytest.raises(InfraError, match=r"javac ended with 1: X\.java:1: error: reached end"):
        compile_jar(tmp_path, tmp_path, "x")
