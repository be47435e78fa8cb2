# SPDX-License-Identifier: Apache-2.0
"""`kill -9` of the control program at random moments: `python -m tests.fuzz.kill_moments --count 50`.

Whatever it was doing: the faults end without it, every history that had begun can be checked and is never `valid` by
what is missing, and after `harness clean` nothing of the run is left on this machine. Every third run is killed in the
middle of a power cycle of all nodes, the others at any moment of a run with other faults. The leases and the guard, and
`harness clean`, take turns: in every second run of a backend the run's janitor is killed as well and `clean` comes at
once, and must end everything alone.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from random import Random

sys.path[:0] = [str(Path(__file__).parents[1])]

from cluster.real_runs import Going, going, harness, left_of, nodes_of  # noqa: E402

from infra.machines.ownership import Owner  # noqa: E402

RUN = ("--nodes", "3", "--interval", "4", "--duration", "3")
FAULTS = (
    "hammer-time,partition-halves",
    "disk-slow,packet-delay",
    "memory-squeeze,clock-step",
    "disk-stall,slow-node,packet-loss",
    "disk-full,clock-strobe,bandwidth",
    "flip-bits,long-pause",
    "disk-error,packet-duplicate",
    "rolling-restart,wipe-node",
)
CYCLE = "power-failure"
CYCLE_S = 0.6
"""About as long as a power cycle takes, without the servers' starts."""
LENGTH_S = 10
LONGEST_S = 34.0
"""About as long as such a run takes, from the first line to the last."""
GONE_S = 30.0


def killed_at(
    moment_s: float, cluster: str, nemesis: str, seed: int, store: Path, clean_alone: bool = False
) -> list[str]:
    """Start a run and kill it, with the power cycle after so many seconds of the first one, else after so many seconds
    of the run; what is wrong afterwards. clean_alone: the janitor dies, too, and `harness clean` comes at once.
    """
    wrong: list[str] = []
    facts: dict[str, str] = {}
    processes: list[Owner] = []
    loops = _loops()
    options = ("--cluster", cluster, *RUN, "--nemesis", nemesis, "--time-limit", str(LENGTH_S), "--seed", str(seed))
    with going(*options, store=store) as started:
        begun_at = time.monotonic()
        while time.monotonic() < begun_at + (LONGEST_S if nemesis == CYCLE else moment_s) and not started.ended:
            if nemesis == CYCLE and _cutting(started):
                facts = _facts(started)
                processes = nodes_of(facts)
                time.sleep(moment_s)
                break
            time.sleep(0.05)
        else:
            if not started.ended and (facts := _facts(started)):
                processes = nodes_of(facts)
            wrong += ["there was no power cycle"] * (nemesis == CYCLE)
        if clean_alone and facts:
            _kill_janitor(facts["run_id"])
        ended = started.kill()
    if facts and not clean_alone:
        until = time.monotonic() + GONE_S
        while (left := left_of(facts, processes)) and time.monotonic() < until:
            time.sleep(0.2)
        wrong += [f"left without `clean`: {what}" for what in left]
    cleaned = harness("clean")
    if cleaned.returncode != 0 or "Traceback" in cleaned.stdout + cleaned.stderr:
        wrong.append(f"clean ended with {cleaned.returncode}: {cleaned.stdout}{cleaned.stderr}")
    if facts:
        wrong += [f"left after `clean`: {what}" for what in left_of(facts, processes)]
    wrong += [f"left after `clean`: {loop}" for loop in sorted(_loops() - loops)]
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
    """The facts that the run has recorded about itself by now; empty before that."""
    try:
        facts: dict[str, str] = json.loads((started.store / "latest" / "environment.json").read_text())
    except (OSError, ValueError):
        return {}
    return facts


def _kill_janitor(run_id: str) -> None:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if b"infra.machines.janitor" in words and run_id.encode() in words:
                os.kill(int(path.parent.name), signal.SIGKILL)


def _loops() -> set[str]:
    """The loop devices of this machine that have a file behind them."""
    return {path.parent.parent.name for path in Path("/sys/block").glob("loop*/loop/backing_file")}


def _cutting(started: Going) -> bool:
    """True if the run is about to cut the power of its nodes."""
    journal = started.store / "latest" / "journal.jsonl"
    with suppress(OSError):
        return b'"inject"' in journal.read_bytes()
    return False


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(argv)
    rng, failures = Random(given.seed), 0
    for number in range(given.count):
        cluster, clean_alone, cycle = ("docker", "local")[number % 2], number % 4 > 1, number % 3 == 0
        nemesis = CYCLE if cycle else FAULTS[number % len(FAULTS)]
        moment = rng.uniform(0, CYCLE_S) if cycle else rng.uniform(0.2, LONGEST_S)
        with tempfile.TemporaryDirectory(prefix="kill-moments-") as folder:
            wrong = killed_at(moment, cluster, nemesis, rng.randrange(1 << 20), Path(folder) / "store", clean_alone)
        print(
            f"{number + 1:3} {cluster:<7} {nemesis:<32} after {moment:5.2f} s, "
            f"{'clean at once' if clean_alone else 'leases first'}: {'; '.join(wrong) or 'fine'}",
            flush=True,
        )
        failures += bool(wrong)
    print(f"{given.count} runs killed, {failures} with something wrong (seed {given.seed}, process {os.getpid()})")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
