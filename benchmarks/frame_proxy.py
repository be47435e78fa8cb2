"""What the proxy of `frame-fault` costs: the same seeds with it and without it, one run after the other.

    python benchmarks/frame_proxy.py --seeds 10 --option "--cluster local"

Each pair runs on two kept clusters of its own, which alternate. The only frame that is touched is one heartbeat, for a
millisecond. Prints the throughput of both, the ratio of the sums, and where the verdicts differ.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

FAULT = "frame-fault target=master link=clients code=310 frame=request which=1 act=delay by=1ms for=3s every=600s"
KINDS = {"without": "none", "with": FAULT}


def run(nemesis: str, seed: int, kept: str | None, options: list[str], store: str) -> dict[str, Any]:
    """One run: `ok` operations, `verdict`, `names` of its anomalies, `cluster` (to run on it again)."""
    said = Path(store) / "run.json"
    said.unlink(missing_ok=True)
    argv = ["harness", "run", "--workload", "log", "--topology", "controller", "--nodes", "3", "--nemesis", nemesis]
    argv += ["--seed", str(seed), "--json", str(said), "--store", store, *options]
    argv += ["--reuse", kept] if kept else ["--keep"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if not said.is_file():
        sys.exit(f"{shlex.join(argv)}: {done.stderr or done.stdout}")
    told = json.loads(said.read_text())
    judged = json.loads((Path(told["folder"]) / "verdict.json").read_text())
    stats = next(result["stats"] for result in judged["results"] if result["checker"] == "stats")
    return {
        "ok": sum(each["ok"] for each in stats["by_f"].values()),
        "verdict": told["verdict"],
        "names": sorted({anomaly["name"] for result in judged["results"] for anomaly in result.get("anomalies", [])}),
        "cluster": told["run_id"],
    }


@click.command()
@click.option("--seeds", default=10, help="So many seeds, from 1.")
@click.option("--seconds", default=15, help="Load of each run.")
@click.option("--rate", default=4000, help="Operations per second that are asked for.")
@click.option("--option", default="", help='For the runs: "--cluster local".')
def main(seeds: int, seconds: int, rate: int, option: str) -> None:
    """The ratio of the sums is the figure."""
    kept: dict[str, str | None] = dict.fromkeys(KINDS)
    sums = dict.fromkeys(KINDS, 0)
    differ = 0
    options = ["--rate", str(rate), "--time-limit", f"{seconds}s", *shlex.split(option)]
    with tempfile.TemporaryDirectory() as store:
        for seed in range(1, seeds + 1):
            found = {}
            for kind in list(KINDS) if seed % 2 else list(reversed(KINDS)):
                found[kind] = one = run(KINDS[kind], seed, kept[kind], options, store)
                kept[kind] = one["cluster"]
                sums[kind] += one["ok"]
            differ += len({one["verdict"] for one in found.values()}) > 1
            words = (
                f"{kind} {one['ok'] / seconds:7.0f}/s {one['verdict']} {one['names']}" for kind, one in found.items()
            )
            print(f"seed {seed:2}  ", "   ".join(words), flush=True)
    print(f"with / without: {sums['with'] / sums['without']:.3f}; verdicts differ in {differ} of {seeds}")


if __name__ == "__main__":
    main()
