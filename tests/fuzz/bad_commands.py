# SPDX-License-Identifier: Apache-2.0
"""Bad command lines, plans and surroundings, and output that goes nowhere."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Final

from fuzz.bad_common import ESCAPES, GOOD, OPS, USAGE, WORDS, Case, mangled, odd_file, stored_run, write
from results.formats import write_edn, write_jsonl
from results.op import Op

NUMBERS: Final = ("nan", "inf", "-inf", "-1", "", "1e400", "-0.5", "9" * 400, "0x10", "1__0", "many", "\x1b[7m1")
TIMES: Final = (
    "nan",
    "inf",
    "-1s",
    "",
    "1e15",
    "9" * 300,
    "9" * 300 + "s",
    "5 parsecs",
    "1h30",
    "s",
    "-0",
    "99999999h",
)
"""Wrong for every option of their kind."""

_RUN_BAD: Final[Mapping[str, Sequence[str]]] = {
    "--time-limit": TIMES,
    "--interval": TIMES,
    "--duration": TIMES,
    "--op-deadline": TIMES,
    "--recovery-limit": TIMES,
    "--rate": ("nan", "inf", "-1", "", "1e400", "many"),
    "--concurrency": ("-1", "0", "1.5", "nan", "9" * 5000, ""),
    "--ops-per-key": ("-1", "0", "x", "9" * 400),
    "--seed": ("x", "1.5", "nan", "9" * 400, "9" * 5000),
    "--nodes": ("0", "51", "-3", "9" * 100, "five"),
    "--brokers": ("0", "6", "-1", "x"),
    "--workload": (*WORDS, *ESCAPES[:4]),
    "--nemesis": (*WORDS, *ESCAPES[:4], "none,bridge"),
    "--target": (*WORDS, *ESCAPES[:4], "n9", "n1,all"),
    "--read-mode": WORDS,
    "--client": WORDS,
    "--consume": WORDS,
    "--cluster": (*WORDS, "k8s", "ssh", ESCAPES[0]),
    "--topology": WORDS,
    "--profile": WORDS,
    "--controller-type": WORDS,
    "--version": (*WORDS, "5.1.2", "99.0.0", ESCAPES[1]),
    "--server-jars": ("/no/such/folder", "x" * 5000, "/dev/null", "\udcff", ESCAPES[0]),
    "--set": ("heartbeat", "=", "=x", "nokind.x=1", "broker=1", "broker.brokerId=7", "broker.a=1\n2", ESCAPES[4]),
    "--node": ("h1", "root@h1:22"),
    "--no-such": ("x",),
}
_CHECK_BAD: Final[Mapping[str, Sequence[str]]] = {
    "--budget-s": NUMBERS,
    "--memory-mb": (*NUMBERS, "0", "1.5", "9" * 5000),
    "--jobs": ("0", "-1", "x", "nan", ""),
    "--model": (*WORDS, ESCAPES[0]),
    "--format": (*WORDS, ESCAPES[0]),
    "--failed-cas": WORDS,
    "--nil-reads": WORDS,
    "--models": ("/no/such.csv", "x" * 5000, "/dev/null", "/", "\udcff"),
}


def options_of_run(rng: Random, folder: Path) -> Case:
    option = rng.choice(list(_RUN_BAD))
    value = rng.choice(_RUN_BAD[option])
    more = rng.choice([[], ["--seed", "1"], ["--workload", "queue"], ["--topology", "controller"]])
    return Case(f"run {option}", ["run", "--dry-run", *more, f"{option}={value}"], [USAGE])


def options_together(rng: Random, folder: Path) -> Case:
    """Each is right, and together they are not."""
    argv = rng.choice(
        [
            ["--keep", "--ground-truth"],
            ["--cluster", "ssh", "--nemesis", "none"],
            ["--cluster", "ssh", "--node", "h1"],
            ["--cluster", "docker", "--node", "h1", "--disposable"],
            ["--cluster", "ssh", "--node", "h1", "--disposable", "--nodes", "3"],
            ["--workload", "register", "--keep"],
            ["--workload", "register", "--snapshot", "--read-mode", "quick"],
            ["--workload", "register", "--consume", "pop"],
            ["--interval", "5", "--duration", "5"],
            ["--time-limit", "30d"],
            ["--time-limit", "29h", "--interval", "0.002", "--duration", "0.001"],
            ["--topology", "slave-acting-master", "--nodes", "2"],
            ["--target", "minority", "--nodes", "1"],
        ]
    )
    return Case(f"run {' '.join(argv)}", ["run", "--dry-run", *argv], [USAGE])


def options_of_others(rng: Random, folder: Path) -> Case:
    good = write(folder / "good.jsonl", write_jsonl)
    command = rng.choice(["check", "batch", "trends", "serve", "list", "walk", "nothing"])
    match command:
        case "check" | "batch":
            if command == "batch":
                option = rng.choice(
                    [o for o in _CHECK_BAD if o not in ("--jobs", "--models", "--model")] + ["--portion-s"]
                )
                value = rng.choice(_CHECK_BAD.get(option, NUMBERS))
                return Case(f"batch {option}", ["batch", f"--input={good}", f"{option}={value}"], [USAGE])
            option = rng.choice(list(_CHECK_BAD))
            value = rng.choice(_CHECK_BAD[option])
            return Case(f"check {option}", ["check", str(good), f"{option}={value}"], [USAGE])
        case "trends":
            return Case("trends", ["trends", "--input", rng.choice(["/no/such", "x" * 5000, "\udcff"])], [USAGE])
        case "serve":
            return Case("serve", ["serve", f"--port={rng.choice(['0', '-1', '70000', 'x', '9' * 400, ''])}"], [USAGE])
        case "list":
            return Case("list", ["list", rng.choice([*WORDS[2:], *ESCAPES[:4]])], [USAGE])
        case "walk":
            return Case(
                "no command", [rng.choice([w for w in (*WORDS, *ESCAPES[:4]) if not w.startswith("-")])], [USAGE]
            )
        case _:
            return Case(
                "check of nothing", ["check", rng.choice(["/no/such", "y" * 5000, "\x1b[2J", "\udcff"])], [USAGE]
            )


PLANS: Final[Sequence[str | bytes]] = (
    "workload = 5",
    "seed = 1.5",
    "seed = true",
    "rate = 'x'",
    "rate = nan",
    "rate = inf",
    "time_limit = -1",
    "time_limit = '1e9'",
    "time_limit = 1e15",
    "time_limit = inf",
    "[cluster]\nhosts = 'h'",
    "[cluster]\nhosts = [1]",
    "cluster = 7",
    "nemesis = 'bridge'",
    "[[nemesis]]\nevery = '20s'",
    "[[nemesis]]\nfault = 'x\\u001b[2J'",
    "[[nemesis]]\nfault = 'bridge'\nevery = '1s'\nfor = '2s'",
    '"\\u001b[31mx" = 1',
    "no_such = 1",
    "a = ",
    "= 1",
    "[",
    "]]",
    '[server]\njvm_options = ["-Da=\\u0000"]',
    "[server]\nset = 5",
    "[server]\nset.'broker.brokerId' = '1'",
    "[server]\njars = '" + "j" * 5000 + "'",
    "[server]\nversion = '1.0'",
    '[server]\nversion = "\\u001b[31m"',
    "[cluster]\ndisposable = true",
    "[cluster]\ninstall = true",
    b"\xff\xfe",
    b"\x00",
    "[[nemesis]]\nfault = 'bridge'\ntarget = ''",
    "time_limit = 1e6\n[[nemesis]]\nfault = 'bridge'\nevery = '2ms'\nfor = '1ms'",
    "concurrency = 0",
    "concurrency = 100000",
    "read_mode = []",
    "snapshot = 'yes'",
    "client = {}",
    "recovery_limit = []",
)


def plans(rng: Random, folder: Path) -> Case:
    path = folder / "plan.toml"
    kind = rng.randrange(8)
    if kind < 4:
        data = rng.choice(PLANS)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
    elif kind == 4:
        size = rng.choice([300, 900, 5000, 100_000])
        made = [
            "workload = " + "[" * size,
            "workload = " + "[" * size + "]" * size,
            "x." * size + "y = 1",
            "[server]\nset." + "a." * size + "b = 1",
            "seed = " + "9" * size,
            "rate = " + "9" * size + ".0",
            "workload = '" + "w" * size + "'",
            "".join(f"k{i} = 1\n" for i in range(size)),
            "[[nemesis]]\nfault = 'bridge'\n" * min(size, 3000) + "x = 1",
        ]
        path.write_text(rng.choice(made))
    elif kind == 5:
        odd_file(rng, path)
    else:
        whole = 'workload = "log"\nseed = 7\ntime_limit = "90s"\n[cluster]\nbackend = "auto"\n'
        whole += '[[nemesis]]\nfault = "bridge"\n'
        path.write_bytes(mangled(rng, whole.encode()))
        return Case("plan, mangled", ["run", "--dry-run", "--plan", str(path)], [0, USAGE])
    return Case("plan", ["run", "--dry-run", "--plan", str(path)], [USAGE])


def surroundings(rng: Random, folder: Path) -> Case:
    good = write(folder / "good.jsonl", write_jsonl)
    (folder / "file").write_text("")
    codes: Sequence[int]
    argv, codes = rng.choice(
        [
            (["doctor"], (0, 3)),
            (["list", "clusters"], (0,)),
            (["list"], (0,)),
            (["check", str(good), "--model", "cas-register"], (0,)),
            (["run", "--dry-run"], (0,)),
            (["--help"], (0,)),
        ]
    )
    name, value = rng.choice(
        [
            *(
                ("DOCKER_HOST", v)
                for v in (
                    "gugus",
                    "ssh://x@127.0.0.1:1",
                    "tcp://127.0.0.1:1",
                    "unix:///x\x1b[2J",
                    "http://[",
                    "npipe://",
                )
            ),
            *(("HARNESS_CACHE", v) for v in (str(folder / "file"), "/proc/x", "x" * 5000)),
            *(("PYTHONIOENCODING", "ascii"), ("LC_ALL", "C"), ("LANG", "tlh"), ("TERM", "\x1b"), ("COLUMNS", "-1")),
            *(("HOME", "/no/such"), ("TMPDIR", "/no/such"), ("PYTHONWARNINGS", "error"), ("TZ", "Mars/Olympus")),
        ]
    )
    if "HARNESS_CACHE" in name:
        codes = (*codes, 3)
    return Case(f"{name}, {argv[0]}", argv, codes, env={name: value}, own=True)


def outputs(rng: Random, folder: Path) -> Case:
    """Output that cannot be written, or that nobody reads."""
    good = write(folder / "good.jsonl", write_jsonl)
    bad = write(folder / "bad.edn", write_edn)
    os.mkfifo(folder / "pipe")
    (folder / "full.html").symlink_to("/dev/full")
    check = ["check", str(good), "--model", "cas-register"]
    kind = rng.randrange(6)
    if kind == 0:
        return Case("full", rng.choice([check, ["list"], ["--help"], ["run", "--dry-run"]]), [3], output="/dev/full")
    if kind == 1:
        argv, code = rng.choice(
            [(check, 0), (["list"], 0), (["--help"], 0), (["run", "--dry-run"], 0), (["check", str(bad)], 0)]
        )
        return Case("closed pipe", argv, [code], output="closed")
    where = rng.choice(
        ["/dev/full", "/no/such/folder/x", "x" * 5000, str(folder), str(folder / "pipe"), str(folder / "full.html")]
    )
    if kind == 2:
        return Case("json", [*check, "--json", where], [3])
    if kind == 3:
        invalid = folder / "invalid.jsonl"
        write_jsonl(
            [
                OPS[0],
                Op(1, 40, 0, "ok", "write", "k", 1),
                Op(2, 70, 2, "invoke", "read", "k"),
                Op(3, 80, 2, "ok", "read", "k", 2),
            ],
            invalid,
        )
        return Case("explain", ["check", str(invalid), "--model", "register", "--explain", where], [3])
    if kind == 4:
        return Case(
            "pack",
            ["batch", f"--input={good}", "--pack", rng.choice(["/dev/full", "/dev/null", str(folder / "pipe")])],
            [3],
        )
    run = stored_run(folder / "store", "2026-11-21T06-12-44")
    for name in ("verdict.json", "report.html", "junit.xml"):
        (run / name).unlink(missing_ok=True)
        (run / name).mkdir()
    return Case("no place for a verdict", ["check", str(run)], GOOD)
