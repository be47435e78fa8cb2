# SPDX-License-Identifier: Apache-2.0
"""A check that passed is not repeated; anything else that goes in is checked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from infra.machines.api import SettingsError
from infra.systems.passed import once


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "jars"
    folder.mkdir()
    (folder / "a.jar").write_text("a")
    return folder


def test_what_passed_is_checked_again_when_anything_is_different(jars: Path) -> None:
    calls: list[str] = []

    def tried(*given: str, name: str = "settings") -> int:
        once(name, given, [jars], lambda: calls.append("x"))
        return len(calls)

    assert (tried("broker a 1"), tried("broker a 1")) == (1, 1)
    assert (tried("broker a 2"), tried("broker", "a 1"), tried("broker a 1", name="mends")) == (2, 3, 4)
    os.utime(jars / "a.jar", (1, 1))
    assert (tried("broker a 1"), tried("broker a 1")) == (5, 5)
    (jars / "b.jar").write_text("b")
    assert (tried("broker a 1"), tried("broker a 1")) == (6, 6)


def test_what_failed_is_checked_again(jars: Path) -> None:
    def fails() -> None:
        raise SettingsError("no such setting")

    for _ in range(2):
        with pytest.raises(SettingsError):
            once("settings", ["broker a 1"], [jars], fails)
