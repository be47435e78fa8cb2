# SPDX-License-Identifier: Apache-2.0
"""The cost of the proxy of `frame-fault`: the same seeds with it and without it.

    python benchmarks/frame_proxy.py --seeds 10 --option "--cluster local"

The first half of the seeds runs without the proxy, then all of them with it, then the second half without it, each part
on its own cluster: a drift of the machine affects both alike. A cluster ends before the next one starts: the servers of
an idle cluster take half a processor. The proxy delays only one frame, a heartbeat, for a millisecond. Prints the
throughput of both, the ratio of the sums, and the seeds whose verdicts differ. Kept clusters are removed: the benchmark
needs the machine for itself.
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
WARM_UP = 0
"""The seed of the first run on a cluster, which is not counted: its servers have not compiled their code yet."""


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
@click.option("--seconds", default=20, help="Load of each run.")
@click.option("--rate", default=4000, help="Operations per second that are asked for.")
@click.option("--option", default="", help='For the runs: "--cluster local".')
def main(seeds: int, seconds: int, rate: int, option: str) -> None:
    """The ratio of the sums is the figure."""
    options = ["--rate", str(rate), "--time-limit", f"{seconds}s", *shlex.split(option)]
    found: dict[str, dict[int, dict[str, Any]]] = {kind: {} for kind in KINDS}
    half = (seeds + 1) // 2
    with tempfile.TemporaryDirectory() as store:
        for kind, first, last in (("without", 1, half), ("with", 1, seeds), ("without", half + 1, seeds)):
            kept = None
            for seed in (WARM_UP, *range(first, last + 1)):
                one = run(KINDS[kind], seed, kept, options, store)
                kept = one["cluster"]
                if seed != WARM_UP:
                    found[kind][seed] = one
                    print(
                        f"seed {seed:2} {kind:7} {one['ok'] / seconds:5.0f}/s {one['verdict']} {one['names']}",
                        flush=True,
                    )
            subprocess.run(["harness", "clean", "--kept"], check=True, capture_output=True)
    sums = {kind: sum(one["ok"] for one in of.values()) for kind, of in found.items()}
    differ = sum(one["verdict"] != found["without"][seed]["verdict"] for seed, one in found["with"].items())
    print(f"with / without: {sums['with'] / sums['without']:.3f}; verdicts differ in {differ} of {seeds}")


if __name__ == "__main__":
    main()
