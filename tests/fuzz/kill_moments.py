"""`kill -9` of the control program at random moments: `python -m tests.fuzz.kill_moments --count 50`.

Whatever it was doing: the faults end without it, every history that had begun can be checked and is never `valid` by
what is missing, and after `harness clean` nothing of the run is left on this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from random import Random

sys.path[:0] = [str(Path(__file__).parents[1])]

from cluster.real_runs import Going, going, harness, left_of, nodes_of  # noqa: E402

from infra.machines.ownership import Owner  # noqa: E402

RUN = ("--nodes", "3", "--nemesis", "hammer-time,partition-halves", "--interval", "6", "--duration", "3")
LENGTH_S = 10
LONGEST_S = 34.0
"""About as long as such a run takes, from the first line to the last."""
GONE_S = 30.0


def killed_at(moment_s: float, cluster: str, seed: int, store: Path) -> list[str]:
    """Start a run and kill it after so many seconds; what is wrong afterwards."""
    wrong: list[str] = []
    facts: dict[str, str] = {}
    processes: list[Owner] = []
    options = ("--cluster", cluster, *RUN, "--time-limit", str(LENGTH_S), "--seed", str(seed))
    with going(*options, store=store) as started:
        deadline = time.monotonic() + moment_s
        while time.monotonic() < deadline and not started.ended:
            time.sleep(0.05)
        if not started.ended:
            facts = _facts(started)
            if facts:
                processes = nodes_of(facts)
        ended = started.kill()
    if facts:
        until = time.monotonic() + GONE_S
        while (left := left_of(facts, processes)) and time.monotonic() < until:
            time.sleep(0.2)
        wrong += [f"left without `clean`: {what}" for what in left]
    cleaned = harness("clean")
    if cleaned.returncode != 0 or "Traceback" in cleaned.stdout + cleaned.stderr:
        wrong.append(f"clean ended with {cleaned.returncode}: {cleaned.stdout}{cleaned.stderr}")
    if facts:
        wrong += [f"left after `clean`: {what}" for what in left_of(facts, processes)]
    if ended.folder is not None:
        checked = harness("check", ended.folder.path)
        if checked.returncode not in (0, 1, 2) or "Traceback" in checked.stdout + checked.stderr:
            wrong.append(f"check ended with {checked.returncode}: {checked.stdout}{checked.stderr}")
        whole = (_facts(started) or {}).get("phases") == "complete"
        if checked.returncode == 0 and not whole:
            wrong.append(f"a run that was cut off is valid: {checked.stdout}")
        begun = ended.folder.journal.exists() and b'"invoke"' in ended.folder.journal.read_bytes()
        if begun and "before its first operation" in checked.stdout + checked.stderr:
            wrong.append(f"a history that had begun cannot be checked: {checked.stderr}")
    return wrong


def _facts(started: Going) -> dict[str, str]:
    """What the run had noted about itself by now; empty where it had not come so far."""
    try:
        facts: dict[str, str] = json.loads((started.store / "latest" / "environment.json").read_text())
    except (OSError, ValueError):
        return {}
    return facts


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(argv)
    rng, failures = Random(given.seed), 0
    for number in range(given.count):
        cluster, moment = ("docker", "local")[number % 2], rng.uniform(0.2, LONGEST_S)
        with tempfile.TemporaryDirectory(prefix="kill-moments-") as folder:
            wrong = killed_at(moment, cluster, rng.randrange(1 << 20), Path(folder) / "store")
        print(f"{number + 1:3} {cluster:<7} after {moment:5.1f} s: {'; '.join(wrong) or 'fine'}", flush=True)
        failures += bool(wrong)
    print(f"{given.count} runs killed, {failures} with something wrong (seed {given.seed}, process {os.getpid()})")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
