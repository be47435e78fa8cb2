# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import any_ops
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results import sealed
from results.errors import HistoryError, StoreError
from results.op import Op
from results.sealed import SCHEMA, read_sealed, seal, sealed_metadata


@settings(max_examples=40)  # each example syncs a file to the disk
@given(ops=st.lists(any_ops.ops, max_size=12))
def test_the_round_trip_is_exact(tmp_path_factory: pytest.TempPathFactory, ops: list[Op]) -> None:
    path = tmp_path_factory.mktemp("sealed") / "h.parquet"
    seal(ops, path)
    assert read_sealed(path) == ops


def test_several_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed, "ROW_GROUP", 10)
    ops = [Op(i, i, i % 4, "invoke", "write", f"r{i}", i) for i in range(35)]
    seal(iter(ops), tmp_path / "h")
    assert pq.ParquetFile(tmp_path / "h").num_row_groups == 4
    assert read_sealed(tmp_path / "h") == ops


def test_schema_compression_and_metadata(tmp_path: Path) -> None:
    seal([Op(0, 1, -1, "info", "kill")], tmp_path / "h", {"plan": '{"seed": 7}'})
    file = pq.ParquetFile(tmp_path / "h")
    assert file.schema_arrow.remove_metadata() == SCHEMA
    assert {file.metadata.row_group(0).column(i).compression for i in range(len(SCHEMA))} == {"ZSTD"}
    assert sealed_metadata(tmp_path / "h") == {"format": "1", "plan": '{"seed": 7}'}


def test_none_and_the_word_null_stay_apart(tmp_path: Path) -> None:
    ops = [Op(0, 0, 0, "ok", "read", "null", None), Op(1, 0, 1, "ok", "read", None, "null")]
    seal(ops, tmp_path / "h")
    assert read_sealed(tmp_path / "h") == ops


def test_lone_surrogates_are_written_as_escapes(tmp_path: Path) -> None:
    seal([Op(0, 0, 0, "info", "read", error="no UTF-8: \udcff")], tmp_path / "h")
    assert read_sealed(tmp_path / "h")[0].error == "no UTF-8: \\udcff"


def test_what_breaks_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    def ops() -> Iterator[Op]:
        yield Op(0, 0, 0, "invoke", "read")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StoreError, match=r"h: the sealed history cannot be written: No space left on device \("):
        seal(ops(), tmp_path / "h")
    assert list(tmp_path.iterdir()) == []


def test_the_old_file_stays_whole_until_the_new_one_is(tmp_path: Path) -> None:
    old = [Op(0, 0, 0, "invoke", "read")]
    seal(old, tmp_path / "h")
    with pytest.raises(TypeError):
        seal([Op(0, 0, 0, "invoke", "write", value={1, 2})], tmp_path / "h")
    assert read_sealed(tmp_path / "h") == old
    assert [p.name for p in tmp_path.iterdir()] == ["h"]


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    seal([Op(i, i, 0, "invoke", "read") for i in range(100)], tmp_path / "h")
    whole = (tmp_path / "h").read_bytes()
    for damaged in (b"", b"PAR1", whole[: len(whole) // 2], b"no parquet at all"):
        (tmp_path / "h").write_bytes(damaged)
        with pytest.raises(HistoryError, match="not a sealed history, or damaged") as text:
            read_sealed(tmp_path / "h")
        assert "\n" not in str(text.value)


def test_other_parquet_files_are_told_what_they_lack(tmp_path: Path) -> None:
    pq.write_table(pa.table({"index": [1]}), tmp_path / "h")
    with pytest.raises(HistoryError, match="no column 'time'"):
        read_sealed(tmp_path / "h")
    columns = {name: [1] for name in SCHEMA.names}
    pq.write_table(pa.table(columns), tmp_path / "h")
    with pytest.raises(HistoryError, match="column 'type' is int64"):
        read_sealed(tmp_path / "h")


def test_plain_strings_and_wrong_contents(tmp_path: Path) -> None:
    row = {"index": 0, "time": 1, "process": 2, "type": "ok", "f": "read", "key": "k", "value": "3", "error": None}
    pq.write_table(pa.Table.from_pylist([{**row, "extra": None}]), tmp_path / "h")
    assert read_sealed(tmp_path / "h") == [Op(0, 1, 2, "ok", "read", "k", 3)]
    pq.write_table(pa.Table.from_pylist([{**row, "extra": None, "type": "maybe"}]), tmp_path / "h")
    with pytest.raises(HistoryError, match="op 0: type is 'maybe'"):
        read_sealed(tmp_path / "h")
    for value in ("{", "1,2", "[" * 100_000 + "]" * 100_000):
        pq.write_table(pa.Table.from_pylist([{**row, "extra": None, "value": value}]), tmp_path / "h")
        with pytest.raises(HistoryError, match="column 'value' is not JSON"):
            read_sealed(tmp_path / "h")


@pytest.mark.parametrize(
    "values",
    [["1,2", "[3", "4]", "1"], ["1],[2", "[[3", "4]]"], ["[3", "4]", "1,2"], ['{"a": 1', '"b": 2}', "1,2"], ["", "1"]],
)
def test_a_value_that_goes_from_one_row_to_the_next_is_refused(tmp_path: Path, values: list[str]) -> None:
    """However many values there are in all."""
    row = {"time": 1, "process": 2, "type": "ok", "f": "read", "key": "k", "error": None, "extra": None}
    rows = [{"index": index, "value": value, **row} for index, value in enumerate(values)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "h")
    with pytest.raises(HistoryError, match="column 'value' is not JSON"):
        read_sealed(tmp_path / "h")
