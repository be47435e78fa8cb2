# SPDX-License-Identifier: Apache-2.0
"""Four runs at once, again and again: `python -m tests.fuzz.at_once --rounds 20`.

Their networks and folders are distinct, each ends with a verdict of its own, `latest` is one of the newest, and nothing
is left.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1])]

from cluster.real_runs import Run, going, left_of  # noqa: E402

from results.store import RunDir  # noqa: E402

AT_ONCE = 4
SHORT = ("--nodes", "3", "--nemesis", "none", "--time-limit", "3", "--recovery-limit", "60", "--op-deadline", "10")


def one_round(number: int, folder: Path) -> list[str]:
    """The faults that are found after four runs into one store."""
    store = folder / "store"
    with ExitStack() as stack:
        started = []
        for i in range(AT_ONCE):
            # Of the same name, and begun within the same second: they compete for folders, links and addresses.
            cluster = ("docker", "local")[(number + i) % 2]
            seed = str(AT_ONCE * number + i)
            run = going("--cluster", cluster, "--seed", seed, *SHORT, store=store, output=folder / f"run{i}")
            started.append(stack.enter_context(run))
        ended = [run.wait() for run in started]
    wrong = [f"ended with {run.code}: {run.err}" for run in ended if run.code not in (0, 1, 2)]
    folders = [path for path in store.glob("*/2*") if path.is_dir()]
    if len(folders) != AT_ONCE:
        wrong.append(f"{len(folders)} folders: {[path.name for path in folders]}")
    verdicts = [path for path in folders if (path / "verdict.json").exists()]
    if len(verdicts) != AT_ONCE:
        wrong.append(f"{len(verdicts)} verdicts")
    facts = [Run(0, "", "", RunDir(path)).environment for path in folders if (path / "environment.json").exists()]
    networks = {fact["network"] for fact in facts}
    if len(networks) != AT_ONCE:
        wrong.append(f"networks: {sorted(networks)}")
    newest = max(path.name for path in folders)
    latest = (store / "latest").resolve()
    if latest not in [path.resolve() for path in folders] or latest.name[:19] != newest[:19]:
        wrong.append(f"latest is {latest.name}, the newest {newest}")
    for fact in facts:
        wrong += [f"left: {what}" for what in left_of(fact)]
    return wrong


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args(argv)
    failures = 0
    for number in range(given.rounds):
        with tempfile.TemporaryDirectory(prefix="at-once-") as folder:
            wrong = one_round(number, Path(folder))
        print(f"{number + 1:3} {'; '.join(wrong) or 'fine'}", flush=True)
        failures += bool(wrong)
    print(f"{given.rounds} rounds of {AT_ONCE} runs, {failures} with something wrong")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
