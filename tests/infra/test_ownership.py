# SPDX-License-Identifier: Apache-2.0
"""An owner is one process, never a later one with the same number."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from infra.machines.ownership import Owner, current, is_alive, text_is_alive


def test_this_process_is_alive_and_survives_the_way_through_a_label() -> None:
    me = current()
    assert me.pid == os.getpid()
    assert Owner.parse(str(me)) == me
    assert is_alive(me)
    assert text_is_alive(str(me))


@pytest.mark.parametrize("later", [{"started": 1}, {"boot": "another-boot"}])
def test_same_pid_but_another_process(later: dict[str, object]) -> None:
    assert not is_alive(replace(current(), **later))  # type: ignore[arg-type]


def test_a_zombie_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = Owner.of(child.pid)
    assert owner is not None
    assert is_alive(owner)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, but not waited for: a zombie
    assert not is_alive(owner)
    child.communicate()


@pytest.mark.parametrize("text", ["", "12", "1.2", "a.b.c", "1.2.", "1.2.3.4"])
def test_text_that_names_nobody(text: str) -> None:
    with pytest.raises(ValueError):
        Owner.parse(text)
    assert not text_is_alive(text)
