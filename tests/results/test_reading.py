# SPDX-License-Identifier: Apache-2.0
"""Files of others: what is no regular file, or larger than it looks, is one error, soon and in little memory."""

from __future__ import annotations

import gzip
import json
import os
import socket
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from checkers.base.api import judge
from checkers.base.evidence import own_lines, stamped_lines
from checkers.servers.logs import ServerLogs
from results import reading
from results.durable import created, link, replacing, write_text
from results.errors import HistoryError, StoreError
from results.formats import open_history, read_history, write_jsonl
from results.op import Op
from results.op_table import read_part, write_op_table
from results.reading import log_lines, memory_limit, opened, read_bytes, read_json, read_toml
from results.sealed import SCHEMA, read_sealed, seal, to_columns
from results.store import RunDir, Store
from results.verdict import Verdict

MIB = 1 << 20
OPS = [Op(0, 1, 0, "invoke", "write", "k", 1), Op(1, 2, 0, "ok", "write", "k", 1)]


def odd(folder: Path) -> dict[str, tuple[Path, str]]:
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    (folder / "zero").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as made:
        here = os.open(folder, os.O_RDONLY)
        made.bind(f"/proc/self/fd/{here}/socket")
        os.close(here)
    with (folder / "sparse").open("wb") as file:
        file.truncate(10 << 30)
    return {
        "pipe": (folder / "pipe", "a pipe, not a regular file"),
        "folder": (folder / "folder", "a folder, not a regular file"),
        "device": (folder / "zero", "a device, not a regular file"),
        "socket": (folder / "socket", "a socket, not a regular file"),
        "sparse": (folder / "sparse", "10.0 GiB"),
        "NUL": (folder / "a\0b", "NUL"),
        "long": (folder / ("x" * 5000), "File name too long"),
    }


def test_only_regular_files_of_a_sane_size_are_opened(tmp_path: Path) -> None:
    for path, output in odd(tmp_path).values():
        for read in (read_bytes, read_json, read_toml):
            with pytest.raises(OSError, match=r"^\[Errno") as problem:
                read(path)
            assert output in str(problem.value.strerror)


def test_links_are_followed_where_a_user_named_them_and_not_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("{}")
    (tmp_path / "link").symlink_to("x")
    assert read_json(tmp_path / "link") == {}
    with pytest.raises(OSError, match=r"^\[Errno") as problem:
        read_json(tmp_path / "link", follow=False)
    assert problem.value.strerror == "a link, and links are not followed"


def test_values_nested_too_deeply_are_value_errors(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"[" * 100_000)
    with pytest.raises(ValueError, match="nested too deeply"):
        read_json(tmp_path / "x")
    (tmp_path / "x").write_bytes(b"a = " + b"[" * 900)
    with pytest.raises(ValueError, match="nested too deeply"):
        read_toml(tmp_path / "x")


@pytest.mark.parametrize("toml", ["a." * 100_000 + "b = 1", "a . " * 100_000 + "b = 1", '"a".' * 30_000 + "b = 1"])
def test_keys_of_many_parts_are_not_parsed(toml: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_text(toml)
    with pytest.raises(ValueError, match="a key of more than 100 parts"):
        read_toml(tmp_path / "x")


# Memory


READ = """
import resource, sys
from pathlib import Path
from results.errors import HistoryError
from results.formats import read_history
from results.reading import bounded
import results.sealed

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10

limit, before = resource.getrlimit(resource.RLIMIT_DATA), peak()
try:
    with bounded(Path(sys.argv[1]), int(sys.argv[2])):
        read_history(Path(sys.argv[1]))
except HistoryError as problem:
    print(problem.what)
print(peak() - before, resource.getrlimit(resource.RLIMIT_DATA) == limit)
"""


def repeated(column: pa.Array, rows: int) -> pa.Array:
    """The one value of a column, so many times, in the bytes of one."""
    if column.null_count:
        return pa.nulls(rows, column.type)
    value = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), value)


def bomb(path: Path, kind: str) -> Path:
    match kind:
        case "gzip":
            with gzip.open(path, "wb", compresslevel=1) as packed:
                packed.write(b"{:process")
                for _ in range(300):
                    packed.write(b" " * MIB)
        case "sparse":
            with path.open("wb") as file:
                file.write(b"{:process 0")
                file.truncate(10 << 30)
        case "nested":
            path.write_bytes(b'{"process":0,"type":"invoke","f":"read","value":[' + b"[]," * (4 * MIB) + b"[]]}\n")
        case "rows":
            rows = 1_000_000
            columns = {
                name: repeated(column, rows) for name, column in zip(SCHEMA.names, to_columns([OPS[0]]), strict=True)
            }
            pq.write_table(pa.table(columns), path, compression="zstd", store_schema=False)
        case _:
            rows = 20_000
            word = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([json.dumps("x" * MIB)]))
            columns = dict(zip(SCHEMA.names, to_columns([OPS[0]] * rows), strict=True)) | {"value": word}
            pq.write_table(pa.table(columns), path, compression="zstd", store_schema=False)
    return path


def in_a_process(path: Path, memory: int) -> list[str]:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", READ, path, str(memory)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize("kind", ["gzip", "sparse", "nested", "parquet", "rows"])
@pytest.mark.slow
def test_one_limit_of_memory_for_every_format(kind: str, tmp_path: Path) -> None:
    """In a process of its own, whose memory no earlier test has used."""
    path = bomb(tmp_path / "h", kind)
    output, figures = in_a_process(path, 128 * MIB)
    assert output == "reading it takes more than 128.0 MiB of memory; --memory-mb gives it more"
    grown, as_before = figures.split()
    assert int(grown) < 256
    assert as_before == "True"


def test_a_line_without_end_is_told_by_number(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl"
    write_jsonl(OPS, path)
    with path.open("r+b") as file:
        file.truncate(10 << 30)
    with pytest.raises(HistoryError, match=r"h\.jsonl:3: a line of more than 64\.0 MiB"):
        read_history(path)


@pytest.mark.slow
def test_a_long_sealed_history_needs_no_flag(tmp_path: Path) -> None:
    path = tmp_path / "history.parquet"
    ops = [
        op
        for n in range(300_000)
        for op in (
            Op(2 * n, 900 * n, 3, "invoke", "send", "q-1", {"id": f"n3:{n}"}),
            Op(2 * n + 1, 900 * n + n % 257, 3, "ok", "send", "q-1", {"id": f"n3:{n}", "offset": n}),
        )
    ]
    seal(ops, path)
    assert memory_limit(path, None, packed=True) > reading.PLAIN_FLOOR
    assert len(in_a_process(path, memory_limit(path, None, packed=True))) == 1


@pytest.mark.slow
def test_lines_without_operations_have_an_end(tmp_path: Path) -> None:
    path = tmp_path / "h.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as packed:
        packed.write(b'{"process":0,"type":"invoke","f":"read"}\n' + b"\n" * 6_000_000)
    with pytest.raises(HistoryError, match="more than 5,000,000 lines without an operation"):
        read_history(path)


def test_the_allowance_follows_what_a_file_takes_on_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "h"
    path.write_bytes(b"\x1f\x8b" + b"x" * (100 * MIB))
    with open_history(path) as history:
        assert history.packed
    assert memory_limit(path, None, packed=False) >= 800 * MIB
    assert memory_limit(path, None, packed=True) >= 16_000 * MIB
    assert memory_limit(path, 100 * MIB, packed=True) == 100 * MIB
    with path.open("wb") as file:
        file.truncate(10 << 30)
    assert memory_limit(path, None, packed=True) == reading.PLAIN_FLOOR
    assert memory_limit(tmp_path / "none", None, packed=True) == reading.PLAIN_FLOOR


# Logs and runs


def test_a_long_line_of_a_log_is_cut_and_the_next_is_read(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"x" * 200_000 + b"\n2026-11-21 06:12:45.000 b\n2026-13-41 06:12:45.000 c\n\xff")
    assert [len(line) for line in log_lines(log)] == [65536, 25, 25, 1]
    assert [at for at, _ in stamped_lines(log, {"started_at": "2026-11-21T06:12:44"})] == [None, 10**9, None, None]
    assert [at for at, _ in stamped_lines(log, {"started_at": "noon"})] == [None] * 4


def test_the_times_of_librocketmq(tmp_path: Path) -> None:
    log = tmp_path / "38_rocketmq-cpp.log.0"
    log.write_text("[2026-Nov-30 13:58:12.999999](info):old\n[2026-Nov-30 13:58:14.250001](info):own[f:1]\n")
    environment = {"begun_at": "2026-11-30T13:58:13.000000+00:00", "started_at": "2026-11-30T13:58:13.250000+00:00"}
    assert list(stamped_lines(log, environment)) == [(10**9, "[2026-Nov-30 13:58:14.250001](info):own[f:1]")]


def test_lines_of_earlier_runs_on_the_cluster(tmp_path: Path) -> None:
    """A kept cluster's log goes on. A clock that a fault sets back brings no earlier run."""
    log = tmp_path / "broker.log"
    log.write_text(
        "2026-11-21 06:10:00.000 of an earlier run\n\tat its.Trace\n2026-11-21 06:12:40.500 first\n\tat a.Trace\n"
        "2026-11-21 06:11:00.000 with its clock set back\n"
    )
    assert [line[-5:] for line in own_lines(log, {"begun_at": "2026-11-21T06:12:40.250000+00:00"})] == [
        "first",
        "Trace",
        " back",
    ]
    assert len(list(own_lines(log, {}))) == 5
    log.write_text("Error: no such class\n2026-11-21 06:12:41.000 x\n")
    assert len(list(own_lines(log, {"begun_at": "2026-11-21T06:12:40.250000+00:00"}))) == 2


def test_a_log_larger_than_any_is_unknown_and_no_bug(tmp_path: Path) -> None:
    run = Store(tmp_path).create("x", "", datetime(2026, 11, 21))
    write_jsonl(OPS, run.journal)
    log = run.nodes / "n1" / "server.log"
    log.parent.mkdir()
    with log.open("wb") as file:
        file.truncate(3 << 30)
    [found] = judge(run.load(), [ServerLogs()]).results
    assert found.verdict == Verdict.UNKNOWN
    assert "server.log: the log cannot be read: of 3.0 GiB" in found.reason
    assert "itself failed" not in found.reason


def test_nodes_that_are_linked_elsewhere_are_not_the_runs(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere" / "n1"
    elsewhere.mkdir(parents=True)
    (elsewhere / "server.log").write_text("secret")
    run = Store(tmp_path / "store").create("x", "", datetime(2026, 11, 21))
    write_jsonl(OPS, run.journal)
    run.nodes.rmdir()
    run.nodes.symlink_to(elsewhere.parent)
    assert run.load().logs == {}


@pytest.mark.parametrize("name", ["plan.toml", "observations.jsonl", "journal.jsonl"])
def test_a_pipe_in_a_run_is_told_and_not_waited_for(name: str, tmp_path: Path) -> None:
    run = Store(tmp_path).create("x", "", datetime(2026, 11, 21))
    write_jsonl(OPS, run.journal)
    (run.path / name).unlink(missing_ok=True)
    os.mkfifo(run.path / name)
    with pytest.raises(HistoryError, match=f"{name}: .* a pipe, not a regular file"):
        RunDir(run.path).load()


@pytest.mark.parametrize("name", ["index", "time", "process", "type", "f"])
def test_a_column_without_values_is_told(name: str, tmp_path: Path) -> None:
    columns = dict(zip(SCHEMA.names, to_columns(OPS), strict=True))
    columns[name] = pa.nulls(2, pa.string() if name in ("type", "f") else pa.int64())
    pq.write_table(pa.table(columns), tmp_path / "h.parquet")
    with pytest.raises(HistoryError, match=f"column '{name}' has rows without a value"):
        read_sealed(tmp_path / "h.parquet")


# Writing


def test_drafts_cannot_be_foreseen_nor_planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name in (f".v.json.{os.getpid()}.tmp", ".aa.tmp"):
        (tmp_path / name).symlink_to(victim)
    write_text(tmp_path / "v.json", "x", "the verdict")
    monkeypatch.setattr("os.urandom", lambda size: b"\xaa")
    with pytest.raises(StoreError, match=r"v\.json: the verdict cannot be written: File exists"):
        write_text(tmp_path / "v.json", "y", "the verdict")
    with pytest.raises(StoreError):
        link(tmp_path / "latest", "x")
    assert victim.read_text() == "mine"
    assert (tmp_path / "v.json").read_text() == "x"
    assert (tmp_path / ".aa.tmp").readlink() == victim


def test_no_file_takes_the_place_of_a_pipe_or_a_device(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match="it is a device or a pipe"), replacing(tmp_path / "pipe", "the page"):
        pass
    assert (tmp_path / "pipe").is_fifo()
    assert list(tmp_path.iterdir()) == [tmp_path / "pipe"]


def test_output_to_a_pipe_that_nobody_reads_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match="the list cannot be written"):
        created(tmp_path / "pipe", "the list")
    with created(Path("/dev/null"), "the list") as file:
        file.write("x\udcff")


# Op tables


def test_a_history_that_no_column_holds_is_left_out_and_the_others_are_packed(tmp_path: Path) -> None:
    bad = [Op(0, 1, 2**63, "invoke", "write", "k", 1)]
    nan = [Op(0, 1, 0, "invoke", "write", "k", float("nan"))]
    late = [Op(0, 10**40, 0, "invoke", "write", "k", 1)]
    text: list[HistoryError] = []
    histories = [("a", OPS), ("b", bad), ("c", nan), ("d", late), ("e", OPS)]
    assert write_op_table(histories, tmp_path / "t.parquet", refused=text.append) == 2
    assert [str(one.path) for one in text] == ["b", "c", "d"]
    assert all("an op in it cannot be stored" in str(one) for one in text)
    with pytest.raises(HistoryError, match="b: an op in it"):
        write_op_table(histories, tmp_path / "u.parquet")
    assert not (tmp_path / "u.parquet").exists()


@pytest.mark.parametrize("column", [pa.nulls(2, pa.string()), pa.array([1.5, 2.5])])
def test_a_column_run_that_names_no_history_is_told(column: pa.Array, tmp_path: Path) -> None:
    columns = {"run": column, **dict(zip(SCHEMA.names, to_columns(OPS), strict=True))}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    with pytest.raises(HistoryError, match="column 'run'"):
        read_part(tmp_path / "t.parquet", (0, 1))


def test_opened_closes_what_it_refuses(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for path, _ in odd(tmp_path).values():
        with pytest.raises(OSError, match=r"^\[Errno"):
            opened(path, 1)
    assert len(os.listdir("/proc/self/fd")) == before
