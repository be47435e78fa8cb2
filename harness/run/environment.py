# SPDX-License-Identifier: Apache-2.0
"""The environment of a run: git head, versions, kernel, machine. It is stored with the run to put a verdict into
context.

Only `Environment` writes `environment.json`; it writes each new fact at once.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from results.durable import write_text


class Environment:
    """The facts of a run, on the disk as soon as they are noted."""

    def __init__(self, path: Path, facts: Mapping[str, str]) -> None:
        self._path = path
        self.facts = dict(facts)
        self.note()

    def note(self, **facts: str) -> None:
        """Adds facts. Raises StoreError if the disk does not take them."""
        self.facts |= facts
        write_text(self._path, json.dumps(self.facts, indent=2), "the environment")


def describe(**more: str) -> dict[str, str]:
    """Facts about the control node as text, plus `more`. ISO 8601 in UTC: `begun_at` is now, and `started_at` until
    the run gives it the time of its first op.
    """
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    facts = {
        "begun_at": now,
        "started_at": now,
        "harness": importlib.metadata.version("rocketmq-harness"),
        "git": _git_head(),
        "command": shlex.join(["harness", *map(_without_secret, sys.argv[1:])]),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    return {**facts, **more}


_SECRET = re.compile(
    r"(?i)([\w.-]*(?:secret|passw|passphrase|token|credential|access[._-]?key|api[._-]?key)[\w.-]*\s*[=:]\s*).+",
    re.DOTALL,
)
_IN_URL = re.compile(r"(://[^/@\s:]*:)[^/@\s]*@")


def _without_secret(word: str) -> str:
    """A word of the command line, with `***` for the value of a secret option: reports are passed on."""
    return _IN_URL.sub(r"\1***@", _SECRET.sub(r"\1***", word))


def _git_head() -> str:
    """Commit of the harness itself and whether its tree was touched, or why that is not known."""
    here = Path(__file__).resolve().parent
    try:
        head = _git(here, "rev-parse", "--short=12", "HEAD")
        dirty = bool(_git(here, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return "not run from a git checkout"
    return head + (" (with uncommitted changes)" if dirty else "")


def _git(folder: Path, *argv: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *argv], capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()
