# SPDX-License-Identifier: Apache-2.0
"""A double of kubectl, and of the API behind it, for `infra.machines.backends.kubernetes`.

Its state is a folder: the objects that were applied, and `pods.json`, if a test has put its own answer there. A command
in a pod is a process of this machine. Run as a program it is kubectl; `install` puts it on the path.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

STATE = "KUBECTL_DOUBLE"


def install(folder: Path) -> Mapping[str, str]:
    """The environment in which `kubectl` is the double."""
    state = folder / "state"
    state.mkdir()
    program = folder / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "{Path(__file__).resolve()}" "$@"\n')
    program.chmod(0o755)
    return {"PATH": f"{program.parent}:{os.environ['PATH']}", STATE: str(state)}


def main(argv: Sequence[str]) -> int:
    state = Path(os.environ[STATE])
    with (state / "calls").open("a") as calls:
        calls.write(json.dumps(list(argv)) + "\n")
    words = list(argv)
    while words[0].startswith("--"):
        del words[:2]
    match words:
        case ["version", *_]:
            if (state / "down").exists():
                print("The connection to the server was refused", file=sys.stderr)
                return 1
            return 0
        case ["apply", "-f", "-"]:
            for thing in json.load(sys.stdin)["items"]:
                (state / f"{thing['kind']}.json").write_text(json.dumps(thing))
            return 0
        case ["get", "pods", "-o", "json"]:
            own = state / "pods.json"
            print(own.read_text() if own.exists() else json.dumps({"items": pods(state)}))
            return 0
        case ["delete", "statefulset,service", name, *_]:
            found = [path for path in state.glob("*.json") if json.loads(path.read_text()).get("metadata")]
            for path in found:
                assert json.loads(path.read_text())["metadata"]["name"] == name
                path.unlink()
            return 0
        case ["exec", "-i", pod, "-c", "node", "--", *command]:
            return in_pod(state, pod, command)
    print(f"error: unknown command {words}", file=sys.stderr)
    return 1


def pods(state: Path) -> list[Any]:
    """The pods of the StatefulSet: all run."""
    path = state / "StatefulSet.json"
    if not path.exists():
        return []
    thing = json.loads(path.read_text())
    status = {"containerStatuses": [{"state": {"running": {}}}]}
    return [
        {"metadata": {"name": f"{thing['metadata']['name']}-{i}"}, "status": {**status, "podIP": f"10.0.0.{i + 1}"}}
        for i in range(thing["spec"]["replicas"])
    ]


def in_pod(state: Path, pod: str, command: Sequence[str]) -> int:
    """Runs a command, and reports its exit code as kubectl does."""
    if (state / "lost").exists():
        print(f'Error from server (NotFound): pods "{pod}" not found', file=sys.stderr)
        return 1
    code = subprocess.run(command, check=False, env={**os.environ, "POD": pod}).returncode
    if code:
        code = code if code > 0 else 128 - code
        print(f"command terminated with exit code {code}", file=sys.stderr)
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
