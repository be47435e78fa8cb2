# SPDX-License-Identifier: Apache-2.0
"""Bad histories, lists, stores, tables and requests."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from fuzz.bad_commands import PLANS
from fuzz.bad_common import GOOD, OPS, USAGE, Case, mangled, odd_file, stored_run, write
from results.formats import write_edn, write_jsonl
from results.sealed import SCHEMA, seal, to_columns
from results.verdict_table import VERDICT_TABLE, VerdictRow, to_table

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


def histories(rng: Random, folder: Path) -> Case:
    """A good history with something wrong in it."""
    name, data = _history(rng, folder)
    path = folder / f"h{rng.choice(['', chr(27) + '[31m', chr(10) + 'harness: forged'])}{name}"
    path.write_bytes(mangled(rng, data))
    options = rng.choice(
        [[], ["--witness"], ["--no-jit"], ["--explain", str(folder / "out.html")], ["--budget-s", "0.01"]]
    )
    model = rng.choice([["--model", "register"], ["--model", "cas-register"], ["--model", "log"], []])
    if rng.random() < 0.25:
        return Case("pack", ["batch", "--input", str(path), "--pack", str(folder / "out.parquet")], [0, 2])
    return Case("history", ["check", str(path), *model, *options], (*GOOD, 3))


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
    odd_file(rng, path)
    command = rng.choice(["check", "models", "pack"])
    good = write(folder / "good.jsonl", write_jsonl)
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
        pa.nulls(rows),
        pa.array([1.5] * rows),
        pa.array([None] * rows, pa.string()),
        pa.array([[1]] * rows),
        pa.array([b"\xff\x1b"] * rows),
        pa.array(["\x1b[2J"] * rows),
        pa.array(["nan", *["1,2"] * (rows - 1)]),
        pa.array(["[" * 3000] * rows),
        pa.array([2**63 - 1] * rows),
        pa.array([-5] * rows),
        pa.array(["a\nharness: x"] * rows),
    ]
    if rng.random() < 0.1:
        del columns[name]
    else:
        columns[name] = rng.choice(odd)
    path = folder / "h.parquet"
    pq.write_table(pa.table(columns), path)
    if table or rng.random() < 0.3:
        return Case("parquet, pack", ["batch", f"--input={path}", "--pack", str(folder / "o.parquet")], [0, 2])
    return Case("parquet", ["check", str(path), "--model", "register"], (*GOOD, 3))


def lists(rng: Random, folder: Path) -> Case:
    """`--models FILE.csv`."""
    good = write(folder / "good.jsonl", write_jsonl)
    texts = [
        "",
        "file\n",
        "file,model\n,register\n",
        "file,model\nh,registr\n",
        "file,model,verdict\nh,,vlid\n",
        "a,b\n\x1b,2\n",
        "file,model\n\x1b[2Jx,no\n",
        "file,model\n" + "p" * 5000 + ",register\n",
        'file,model\n"\n',
        "file,model\n" + "x" * 200_000,
        "file,model\nx\x00y,register\n",
        '"' + "q" * 140_000,
    ]
    path = folder / "list.csv"
    text = rng.choice(texts)
    data = text.encode() if rng.random() < 0.7 else mangled(rng, text.encode() or b"file,model\n")
    path.write_bytes(data)
    return Case("list", ["check", str(good), "--models", str(path)], (*GOOD, USAGE))


def stores(rng: Random, folder: Path) -> Case:
    """A stored run in which a file is not what it should be, between two others."""
    runs = [stored_run(folder / "store", f"2026-11-2{n}T06-12-44") for n in range(3)]
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
        odd_file(rng, path)
    elif kind == 1:
        path.write_bytes(rng.choice([b"[" * 100_000, b"\x1b[2J", b"null", b"5", b"\xff" * 100, b"", b'{"a":' * 900]))
    elif kind == 2 and name == "plan.toml":
        data = rng.choice(PLANS)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
    else:
        path.write_bytes(
            mangled(rng, path.read_bytes() if path.is_file() else b'{"time":1,"node":"n1","role":"leader"}\n')
        )
    if rng.random() < 0.4:
        urls = [b"/", b"/trends", b"/files/", b"/files/" + str(bad.relative_to(folder / "store")).encode() + b"/"]
        return Case(f"store, {name}, serve", ["serve", "--store", str(folder / "store")], [0], urls=urls)
    return Case(f"store, {name}", ["check", str(folder / "store")], (0, 1, 2, 3))


def requests(rng: Random, folder: Path) -> Case:
    stored_run(folder / "store", "2026-11-21T06-12-44")
    (folder / "secret").write_text("secret")
    (folder / "store" / "out").symlink_to(folder / "secret")
    os.mkfifo(folder / "store" / "pipe")
    pieces = [
        b"/",
        b"//",
        b"/files/",
        b"/files/out",
        b"/files/pipe",
        b"/files/..%2f..%2fsecret",
        b"/files/%00",
        b"/files/" + b"a/" * 3000,
        b"/?q=%1b[2J&sort=x&page=" + b"9" * 5000,
        b"/?page=-1",
        b"/?page=\xef\xbc\x91",
        b"/files/%ff%fe",
        b"/trends?x=" + b"y" * 9000,
        b"/files/log-none/",
        b"/files/log-none/2026-11-21T06-12-44/plan.toml",
        b"/?" + b"a=1&" * 4000,
        b"*",
        b"/%0d%0aX: y",
        b"/?q=" + b"%e2%80%ae" * 300,
        b"/files/log-none/latest/../../../../secret",
    ]
    return Case("requests", ["serve", "--store", str(folder / "store")], [0], urls=rng.sample(pieces, 4))


def tables(rng: Random, folder: Path) -> Case:
    """A verdict table with odd rows, for `trends`."""
    row = VerdictRow(
        "log-none/x", "log", "valid", "fine", workload="log", nemesis="none", version="5.5.0", began="x", checked=1
    )
    impact = VerdictRow("log-none/x", "impact", "valid", "", figures="[]", checked=1)
    name, value = rng.choice(
        [
            ("verdict", "perhaps"),
            ("verdict", ""),
            ("figures", "["),
            ("figures", "[" * 3000),
            ("figures", "5"),
            ("workload", "\x1b[2J"),
            ("version", "a\nharness: x"),
            ("nemesis", "x" * 9000),
            ("began", "\x1b]0;x\x07"),
            ("run", "\u202e"),
            ("checked", -(2**62)),
            ("figures", '[{"fault": 1}]'),
            ("figures", '[{"fault": "x", "times": "y"}]'),
            ("figures", "[null]"),
            ("figures", "{}"),
        ]
    )
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
        odd_file(rng, out / "b.parquet")
    return Case(f"trends, {name}", ["trends", "--input", str(folder)], [0, 2])


def _history(rng: Random, folder: Path) -> tuple[str, bytes]:
    made: Mapping[str, Callable[[], bytes]] = {
        ".jsonl": lambda: write(folder / "made", write_jsonl).read_bytes(),
        ".plain.jsonl": lambda: "".join(json.dumps(op.to_json()) + "\n" for op in OPS).encode(),
        ".edn": lambda: write(folder / "made", write_edn).read_bytes(),
        ".log": _ETCD.encode,
        ".kv.txt": _KV.encode,
        ".parquet": lambda: write(folder / "made", seal).read_bytes(),
        ".jsonl.gz": lambda: gzip.compress(write(folder / "made", write_jsonl).read_bytes(), mtime=0),
    }
    name = rng.choice(list(made))
    data = made[name]()
    (folder / "made").unlink(missing_ok=True)
    return name, data


def _parquet_bomb(path: Path, *, dense: bool) -> None:
    """Few bytes that are many: one long value, or one row, repeated."""
    rows = 3_000_000 if dense else 60_000
    text = json.dumps("x" * 10 if dense else "x" * (1 << 19))
    word = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([text]))
    nothing = pa.nulls(rows, pa.string())
    numbers = pa.DictionaryArray.from_arrays(word.indices, pa.array([0]))
    named = {
        name: pa.DictionaryArray.from_arrays(word.indices, pa.array([told]))
        for name, told in (("type", "ok"), ("f", "read"))
    }
    columns = {"index": numbers, "time": numbers, "process": pa.array([0] * rows), **named}
    columns |= {"key": nothing, "value": word, "error": nothing, "extra": nothing}
    pq.write_table(pa.table(columns), path, compression="zstd", store_schema=False)
