"""What `tests.fuzz.bad_input` tries: one bad input a call, made from a seed of its own.

Each maker knows by how it makes an input which exit codes are right for it: 64 for what a user got wrong on the command
line or in a plan, 2 for a history that cannot be judged, 3 for output that cannot be written, and a set of them where
chance decides whether the input is still a good one.
"""

from __future__ import annotations

import gzip
import json
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from results.formats import write_edn, write_jsonl
from results.op import Op
from results.sealed import SCHEMA, seal, to_columns
from results.store import Store
from results.verdict_table import VERDICT_TABLE, VerdictRow, to_table

GOOD: Final = (0, 1, 2)
"""Verdicts: what may come of a history that was changed by chance."""
USAGE: Final = 64


@dataclass(frozen=True)
class Case:
    """`argv` of the command, the exit codes that are right, and how it is run.

    env     over the surroundings. output: where standard output goes; None: it is caught. urls: paths to ask for with
            GET where the command is `serve`. own: only in a process of its own.
    """

    name: str
    argv: Sequence[str]
    codes: Sequence[int]
    env: Mapping[str, str] = field(default_factory=dict)
    output: str | None = None
    urls: Sequence[bytes] = ()
    own: bool = False


ESCAPES: Final = (
    "\x1b[31m",
    "\x1b]0;owned\x07",
    "\x9b2J",
    "\r\x1b[2K",
    "a\nharness: no such finding",
    "\u202etxt.exe",
    "\x00",
)
WORDS: Final = (
    "",
    " ",
    "no-such",
    "registr",
    "../../etc/passwd",
    "x" * 5000,
    "ü" * 300,
    "\udcff",
    "-1",
    "%s%n",
    "'; rm -rf /",
)
NUMBERS: Final = ("nan", "inf", "-inf", "-1", "", "1e400", "-0.5", "9" * 400, "0x10", "1_0", "many", "\x1b[7m1")
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

OPS: Final = [
    Op(0, 10, 0, "invoke", "write", "k", 1),
    Op(1, 20, 1, "invoke", "cas", "k", [1, 2]),
    Op(2, 30, -1, "invoke", "kill", None, ["n1"]),
    Op(3, 40, 0, "ok", "write", "k", 1, None, {"node": "n2"}),
    Op(4, 50, 1, "info", "cas", "k", [1, 2], "timed out"),
    Op(5, 60, -1, "info", "kill", None, ["n1"]),
    Op(6, 70, 2, "invoke", "read", "k"),
    Op(7, 80, 2, "ok", "read", "k", 2),
]
_ETCD: Final = """\
INFO  jepsen.util - 4\t:invoke\t:read\tnil
INFO  jepsen.core - something else
INFO  jepsen.util - 3   :invoke :cas    [3 4]
INFO  jepsen.util - 4\t:ok\t:read\tnil
INFO  jepsen.util - 3   :info   :cas    :timed-out
"""
_KV: Final = """\
{:process 0, :type :invoke, :f :append, :key "7", :value "x 0 0 y"}
{:process 0, :type :ok, :f :append, :key "7", :value "x 0 0 y"}
"""


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
            ["--reuse", "h1", "--version", "5.4.0"],
            ["--interval", "5", "--duration", "5"],
            ["--time-limit", "30d"],
            ["--time-limit", "29h", "--interval", "0.002", "--duration", "0.001"],
            ["--topology", "acting-master", "--nodes", "2"],
            ["--target", "minority", "--nodes", "1"],
        ]
    )
    return Case(f"run {' '.join(argv)}", ["run", "--dry-run", *argv], [USAGE])


def options_of_others(rng: Random, folder: Path) -> Case:
    good = _write(folder / "good.jsonl", write_jsonl)
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
            return Case("trends", ["trends", "--input", rng.choice(["/no/such", "x" * 5000, "\udcff"])], [2])
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


_PLANS: Final[Sequence[str | bytes]] = (
    "workload = 5", "seed = 1.5", "seed = true", "rate = 'x'", "rate = nan", "rate = inf", "time_limit = -1",
    "time_limit = '1e9'", "time_limit = 1e15", "time_limit = inf", "[cluster]\nhosts = 'h'", "[cluster]\nhosts = [1]",
    "cluster = 7", "nemesis = 'bridge'", "[[nemesis]]\nevery = '20s'", "[[nemesis]]\nfault = 'x\\u001b[2J'",
    "[[nemesis]]\nfault = 'bridge'\nevery = '1s'\nfor = '2s'", '"\\u001b[31mx" = 1', "no_such = 1", "a = ", "= 1", "[", "]]",
    "[server]\njvm_options = ['-Da=\\u0000']", '[server]\njvm_options = ["-Da=\\u0000"]', "[server]\nset = 5",
    "[server]\nset.'broker.brokerId' = '1'", "[server]\njars = '" + "j" * 5000 + "'", "[server]\nversion = '1.0'",
    '[server]\nversion = "\\u001b[31m"', "[cluster]\ndisposable = true", "[cluster]\ninstall = true", b"\xff\xfe", b"\x00",
    "[[nemesis]]\nfault = 'bridge'\ntarget = ''", "time_limit = 1e6\n[[nemesis]]\nfault = 'bridge'\nevery = '2ms'\nfor = '1ms'",
    "concurrency = 0", "concurrency = 100000", "read_mode = []", "snapshot = 'yes'", "client = {}", "recovery_limit = []",
)  # fmt: skip


def plans(rng: Random, folder: Path) -> Case:
    path = folder / "plan.toml"
    kind = rng.randrange(8)
    if kind < 4:
        data = rng.choice(_PLANS)
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
        _odd_file(rng, path)
    else:
        whole = 'workload = "log"\nseed = 7\ntime_limit = "90s"\n[cluster]\nbackend = "auto"\n[[nemesis]]\nfault = "bridge"\n'
        path.write_bytes(_mangled(rng, whole.encode()))
        return Case("plan, mangled", ["run", "--dry-run", "--plan", str(path)], [0, USAGE])
    return Case("plan", ["run", "--dry-run", "--plan", str(path)], [USAGE])


def histories(rng: Random, folder: Path) -> Case:
    """A good history with something wrong in it."""
    name, data = _history(rng, folder)
    path = folder / f"h{rng.choice(['', chr(27) + '[31m', chr(10) + 'harness: forged'])}{name}"
    path.write_bytes(_mangled(rng, data))
    options = rng.choice(
        [[], ["--witness"], ["--no-jit"], ["--explain", str(folder / "out.html")], ["--budget-s", "0.01"]]
    )
    model = rng.choice([["--model", "register"], ["--model", "cas-register"], ["--model", "log"], []])
    if rng.random() < 0.25:
        return Case("pack", ["batch", "--input", str(path), "--pack", str(folder / "out.parquet")], [0, 2])
    return Case("history", ["check", str(path), *model, *options], GOOD)


def odd_values(rng: Random, folder: Path) -> Case:
    """Lines that can be read, with values that nobody expects."""
    odd: list[Any] = [
        *(float("nan"), float("inf"), 2**63, 2**200, -(2**70), 1e40, True, None, "", [], {}, [[]], "\x1b[2J", "\ud800"),
        *("a\nharness: forged", 0.1, -0.0, {"\x1b": 1}, "x" * 10_000, [1, [2, [3]]]),
    ]
    lines = [op.to_json() for op in OPS]
    for _ in range(rng.randint(1, 3)):
        rng.choice(lines)[rng.choice(["value", "key", "f", "process", "type", "time", "index", "error", "extra"])] = (
            rng.choice(odd)
        )
    path = folder / "odd.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    (folder / "good.jsonl").write_text("".join(json.dumps(op.to_json()) + "\n" for op in OPS))
    if rng.random() < 0.5:
        return Case("odd values, pack", ["batch", f"--input={folder}", "--pack", str(folder / "out.parquet")], [0, 2])
    return Case(
        "odd values", ["check", str(folder), "--model", rng.choice(["register", "cas-register", "set", "log"])], GOOD
    )


def bombs(rng: Random, folder: Path) -> Case:
    """Files that are larger than they look."""
    path = folder / "bomb"
    head = rng.choice(
        [
            b'{"process":0,"type":"invoke","f":"read"}\n',
            b"{:process 0",
            b"INFO  jepsen.util - 4\t:invoke\t:read\tnil\n",
            b"[",
        ]
    )
    kind = rng.choice(["sparse", "blanks", "lines", "nested", "parquet", "rows"])
    match kind:
        case "sparse":
            with path.open("wb") as file:
                file.write(head)
                file.truncate(10 << 30)
        case "blanks" | "lines":
            with gzip.open(path, "wb", compresslevel=6) as packed:
                packed.write(head)
                for _ in range(600):
                    packed.write((b" " if kind == "blanks" else b"\n") * (1 << 20))
        case "nested":
            path.write_bytes(head.rstrip(b"\n")[:-1] + b',"value":[' + b"[]," * (12 << 20) + b"[]]}\n")
        case _:
            _parquet_bomb(path, dense=kind == "rows")
    return Case(f"bomb, {kind}", ["check", str(path), "--model", "register"], [2], own=True)


def odd_files(rng: Random, folder: Path) -> Case:
    path = folder / "h.jsonl"
    _odd_file(rng, path)
    command = rng.choice(["check", "models", "pack"])
    good = _write(folder / "good.jsonl", write_jsonl)
    if command == "check":
        return Case("odd file", ["check", str(path), "--model", "register"], [2, USAGE])
    if command == "models":
        return Case("odd list", ["check", str(good), "--models", str(path)], [USAGE])
    return Case("odd file, pack", ["batch", f"--input={path}", "--pack", str(folder / "o.parquet")], [2])


def parquet(rng: Random, folder: Path) -> Case:
    """A sealed history or an op table with a column that is not what it should be."""
    columns = dict(zip(SCHEMA.names, to_columns(OPS), strict=True))
    if table := rng.random() < 0.4:
        columns = {"run": pa.array(["r"] * len(OPS)), **columns}
    name = rng.choice(list(columns))
    rows = len(OPS)
    odd = [
        pa.nulls(rows), pa.array([1.5] * rows), pa.array([None] * rows, pa.string()), pa.array([[1]] * rows),
        pa.array([b"\xff\x1b"] * rows), pa.array(["\x1b[2J"] * rows), pa.array(["nan", *["1,2"] * (rows - 1)]),
        pa.array(["[" * 3000] * rows), pa.array([2**63 - 1] * rows), pa.array([-5] * rows), pa.array(["a\nharness: x"] * rows),
    ]  # fmt: skip
    if rng.random() < 0.1:
        del columns[name]
    else:
        columns[name] = rng.choice(odd)
    path = folder / "h.parquet"
    pq.write_table(pa.table(columns), path)
    if table or rng.random() < 0.3:
        return Case("parquet, pack", ["batch", f"--input={path}", "--pack", str(folder / "o.parquet")], [0, 2])
    return Case("parquet", ["check", str(path), "--model", "register"], GOOD)


def lists(rng: Random, folder: Path) -> Case:
    """`--models FILE.csv`."""
    good = _write(folder / "good.jsonl", write_jsonl)
    texts = [
        "", "file\n", "file,model\n,register\n", "file,model\nh,registr\n", "file,model,verdict\nh,,vlid\n", "a,b\n\x1b,2\n",
        "file,model\n\x1b[2Jx,no\n", "file,model\n" + "p" * 5000 + ",register\n", 'file,model\n"\n', "file,model\n" + "x" * 200_000,
        "file,model\nx\x00y,register\n", '"' + "q" * 140_000,
    ]  # fmt: skip
    path = folder / "list.csv"
    text = rng.choice(texts)
    data = text.encode() if rng.random() < 0.7 else _mangled(rng, text.encode() or b"file,model\n")
    path.write_bytes(data)
    return Case("list", ["check", str(good), "--models", str(path)], (*GOOD, USAGE))


def stores(rng: Random, folder: Path) -> Case:
    """A stored run in which a file is not what it should be, between two others."""
    runs = [_run(folder / "store", f"2026-11-2{n}T06-12-44") for n in range(3)]
    bad = runs[1]
    name = rng.choice(
        [
            "plan.toml",
            "journal.jsonl",
            "verdict.json",
            "environment.json",
            "observations.jsonl",
            "server.log",
            "history.parquet",
        ]
    )
    path = bad / ("nodes/n1/server.log" if name == "server.log" else name)
    kind = rng.randrange(5)
    if kind == 0:
        _odd_file(rng, path)
    elif kind == 1:
        path.write_bytes(rng.choice([b"[" * 100_000, b"\x1b[2J", b"null", b"5", b"\xff" * 100, b"", b'{"a":' * 900]))
    elif kind == 2 and name == "plan.toml":
        data = rng.choice(_PLANS)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
    else:
        path.write_bytes(
            _mangled(rng, path.read_bytes() if path.is_file() else b'{"time":1,"node":"n1","role":"leader"}\n')
        )
    if rng.random() < 0.4:
        urls = [b"/", b"/trends", b"/files/", b"/files/" + str(bad.relative_to(folder / "store")).encode() + b"/"]
        return Case(f"store, {name}, serve", ["serve", "--store", str(folder / "store")], [0], urls=urls)
    return Case(f"store, {name}", ["check", str(folder / "store")], (0, 1, 2, 3))


def requests(rng: Random, folder: Path) -> Case:
    _run(folder / "store", "2026-11-21T06-12-44")
    (folder / "secret").write_text("secret")
    (folder / "store" / "out").symlink_to(folder / "secret")
    os.mkfifo(folder / "store" / "pipe")
    pieces = [
        b"/", b"//", b"/files/", b"/files/out", b"/files/pipe", b"/files/..%2f..%2fsecret", b"/files/%00", b"/files/" + b"a/" * 3000,
        b"/?q=%1b[2J&sort=x&page=" + b"9" * 5000, b"/?page=-1", b"/?page=\xef\xbc\x91", b"/files/%ff%fe", b"/trends?x=" + b"y" * 9000,
        b"/files/log-none/", b"/files/log-none/2026-11-21T06-12-44/plan.toml", b"/?" + b"a=1&" * 4000, b"*", b"/%0d%0aX: y",
        b"/?q=" + b"%e2%80%ae" * 300, b"/files/log-none/latest/../../../../secret",
    ]  # fmt: skip
    return Case("requests", ["serve", "--store", str(folder / "store")], [0], urls=rng.sample(pieces, 4))


def surroundings(rng: Random, folder: Path) -> Case:
    good = _write(folder / "good.jsonl", write_jsonl)
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
    good = _write(folder / "good.jsonl", write_jsonl)
    bad = _write(folder / "bad.edn", write_edn)
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
    run = _run(folder / "store", "2026-11-21T06-12-44")
    for name in ("verdict.json", "report.html", "junit.xml"):
        (run / name).unlink(missing_ok=True)
        (run / name).mkdir()
    return Case("no place for a verdict", ["check", str(run)], GOOD)


def tables(rng: Random, folder: Path) -> Case:
    """A verdict table with odd rows, for `trends`."""
    row = VerdictRow(
        "log-none/x", "log", "valid", "fine", workload="log", nemesis="none", version="5.5.0", began="x", checked=1
    )
    impact = VerdictRow("log-none/x", "impact", "valid", "", figures="[]", checked=1)
    name, value = rng.choice(
        [
            ("verdict", "perhaps"), ("verdict", ""), ("figures", "["), ("figures", "[" * 3000), ("figures", "5"), ("workload", "\x1b[2J"),
            ("version", "a\nharness: x"), ("nemesis", "x" * 9000), ("began", "\x1b]0;x\x07"), ("run", "\u202e"), ("checked", -(2**62)),
            ("figures", '[{"fault": 1}]'), ("figures", '[{"fault": "x", "times": "y"}]'), ("figures", "[null]"), ("figures", "{}"),
        ]
    )  # fmt: skip
    target = impact if name == "figures" else row
    setattr(target, name, value)
    out = folder / "verdicts"
    out.mkdir()
    table = to_table([row, impact])
    if rng.random() < 0.3:
        at = rng.randrange(len(VERDICT_TABLE))
        table = table.set_column(at, VERDICT_TABLE.names[at], pa.array([1.5] * len(table)))
    pq.write_table(table, out / "a.parquet")
    if rng.random() < 0.2:
        _odd_file(rng, out / "b.parquet")
    return Case(f"trends, {name}", ["trends", "--input", str(folder)], [0, 2])


MAKERS: Final[Sequence[tuple[Callable[[Random, Path], Case], int]]] = (
    (options_of_run, 12),
    (options_together, 5),
    (options_of_others, 10),
    (plans, 12),
    (histories, 16),
    (odd_values, 8),
    (odd_files, 6),
    (parquet, 8),
    (lists, 4),
    (stores, 10),
    (requests, 5),
    (tables, 4),
    (outputs, 4),
    (surroundings, 2),
    (bombs, 1),
)
"""With how often each is drawn."""


def case(seed: int, number: int, folder: Path) -> Case:
    """Case `number` of a seed; its files go into `folder`, which is there and empty."""
    rng = Random(f"{seed}/{number}")
    maker = rng.choices([maker for maker, _ in MAKERS], weights=[weight for _, weight in MAKERS])[0]
    return maker(rng, folder)


def _write(path: Path, write: Callable[[list[Op], Path], object]) -> Path:
    write(OPS, path)
    return path


def _history(rng: Random, folder: Path) -> tuple[str, bytes]:
    made: Mapping[str, Callable[[], bytes]] = {
        ".jsonl": lambda: _write(folder / "made", write_jsonl).read_bytes(),
        ".plain.jsonl": lambda: "".join(json.dumps(op.to_json()) + "\n" for op in OPS).encode(),
        ".edn": lambda: _write(folder / "made", write_edn).read_bytes(),
        ".log": _ETCD.encode,
        ".kv.txt": _KV.encode,
        ".parquet": lambda: _write(folder / "made", seal).read_bytes(),
        ".jsonl.gz": lambda: gzip.compress(_write(folder / "made", write_jsonl).read_bytes(), mtime=0),
    }
    name = rng.choice(list(made))
    data = made[name]()
    (folder / "made").unlink(missing_ok=True)
    return name, data


def _mangled(rng: Random, data: bytes) -> bytes:
    """Some bytes changed, cut out, doubled or put in."""
    found = bytearray(data)
    odd = [
        b"\x1b[31m",
        b"\x00",
        b"\xff",
        b"\n",
        b"[" * 2000,
        b'"',
        b"9" * 5000,
        b"{",
        b"\xe2\x80\xae",
        b"NaN",
        b"1e999",
        b"\\u001b",
        b"\x9b",
    ]
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(found) + 1)
        match rng.randrange(5):
            case 0:
                found[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del found[at:]
            case 2:
                found[at:at] = rng.choice(odd)
            case 3:
                del found[at : at + rng.randint(1, 20)]
            case _:
                found[at:at] = found[at : at + 200]
    return bytes(found)


def _odd_file(rng: Random, path: Path) -> None:
    """Something else in the place of a file: never a good one."""
    if path.is_file():
        path.unlink()
    match rng.randrange(7):
        case 0:
            os.mkfifo(path)
        case 1:
            path.symlink_to(rng.choice(["/dev/zero", "/dev/null", "/dev/urandom", "/proc/self/mem"]))
        case 2:
            path.symlink_to(path.name)
        case 3:
            path.mkdir()
        case 4:
            here = os.open(path.parent, os.O_RDONLY)
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(f"/proc/self/fd/{here}/{path.name}")
            os.close(here)
        case 5:
            with path.open("wb") as file:
                file.truncate(3 << 30)
        case _:
            path.symlink_to("no-such-target")


def _parquet_bomb(path: Path, *, dense: bool) -> None:
    """Few bytes that are many: one long value, or one row, repeated."""
    rows = 3_000_000 if dense else 60_000
    text = json.dumps("x" * 10 if dense else "x" * (1 << 19))
    word = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([text]))
    nothing = pa.nulls(rows, pa.string())
    numbers = pa.array(range(rows))
    named = {
        name: pa.DictionaryArray.from_arrays(word.indices, pa.array([told]))
        for name, told in (("type", "ok"), ("f", "read"))
    }
    columns = {"index": numbers, "time": numbers, "process": pa.array([0] * rows), **named}
    columns |= {"key": nothing, "value": word, "error": nothing, "extra": nothing}
    pq.write_table(pa.table(columns), path, compression="zstd", store_schema=False)


def _run(store: Path, when: str) -> Path:
    plan = 'workload = "register"\nseed = 7\n[cluster]\nbackend = "docker"\n'
    run = Store(store).create("log-none", plan, datetime.strptime(when, "%Y-%m-%dT%H-%M-%S")).path
    write_jsonl(OPS, run / "journal.jsonl")
    (run / "environment.json").write_text(json.dumps({"started_at": "2026-11-21T06:12:44", "kernel": "6"}))
    (run / "observations.jsonl").write_text('{"time":1,"node":"n1","role":"leader"}\n')
    (run / "nodes" / "n1").mkdir()
    (run / "nodes" / "n1" / "server.log").write_text("2026-11-21 06:12:45.000 INFO started\n")
    (run / "verdict.json").write_text('{"verdict": "valid", "reason": "fine", "results": []}')
    return run
