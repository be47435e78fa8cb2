# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import any_ops
import pytest
from hypothesis import given

from results import journal as journals
from results.errors import HistoryError, StoreError
from results.journal import Journal, encode, line, read_journal, scan
from results.op import Op


def some(count: int) -> list[Op]:
    return [
        Op(i, i * 10, i % 3, "invoke", "write", f"r{i % 2}", i, None, {"node": "n1", "scheduled": i})
        for i in range(count)
    ]


def written(path: Path, ops: list[Op]) -> bytes:
    with Journal(path) as journal:
        for op in ops:
            journal.append(op)
    return path.read_bytes()


@given(any_ops.ops)
def test_the_hand_made_encoding_is_json(op: Op) -> None:
    assert encode(op).decode() + "}" == json.dumps(op.to_json(), separators=(",", ":"))


@given(any_ops.ops)
def test_a_line_is_read_back_as_the_same_op(op: Op) -> None:
    assert journals.parse(line(op), need_crc=True, position=0) == op
    assert json.loads(line(op))["index"] == op.index


def test_lone_surrogates_survive() -> None:
    op = Op(0, 0, 0, "info", "read", error="bytes that were no UTF-8: \udcff")
    assert journals.parse(line(op), need_crc=True, position=0) == op


def test_what_was_appended_is_read_back(tmp_path: Path) -> None:
    ops = some(10_000)
    written(tmp_path / "j", ops)
    assert read_journal(tmp_path / "j") == (ops, None)


def test_an_empty_journal_has_no_ops(tmp_path: Path) -> None:
    written(tmp_path / "j", [])
    assert read_journal(tmp_path / "j") == ([], None)


@pytest.mark.parametrize("lost", [1, 2, 17, 18, 19, 40])
def test_a_torn_tail_is_cut_and_told(tmp_path: Path, lost: int) -> None:
    path = tmp_path / "j"
    ops = some(5)
    whole = written(path, ops)
    path.write_bytes(whole[:-lost])
    last = len(whole.splitlines(keepends=True)[-1])
    if lost == 1:  # only the newline is missing: the line itself is whole
        assert read_journal(path) == (ops, None)
    else:
        assert read_journal(path) == (ops[:4], f"the last {last - lost} bytes were torn and are left out")


def test_zeros_and_broken_lines_at_the_end_are_a_torn_tail(tmp_path: Path) -> None:
    path = tmp_path / "j"
    ops = some(5)
    whole = written(path, ops)
    tail = b'{"index":5,"crc":"00000000"}\n' + bytes(4096)
    path.write_bytes(whole + tail)
    assert read_journal(path) == (ops, "the last 4.0 KiB were torn and are left out")


def test_a_journal_that_grows_while_it_is_read_is_read_up_to_the_line_being_written(tmp_path: Path) -> None:
    path = tmp_path / "j"
    ops = some(5)
    whole = written(path, ops)
    cut = len(b"".join(whole.splitlines(keepends=True)[:3])) + 20
    path.write_bytes(whole[:cut])

    def growing(file: Iterable[bytes]) -> Iterator[bytes]:
        for text in file:
            if not text.endswith(b"\n"):
                with path.open("ab") as writer:
                    writer.write(whole[cut:])
            yield text

    with path.open("rb") as file:
        assert scan(path, growing(file), need_crc=True) == (ops[:3], "the last 20 bytes were torn and are left out")
    assert read_journal(path) == (ops, None)


@pytest.mark.parametrize("total", [5, 9000])
@pytest.mark.parametrize("place", [0, 2])
def test_a_changed_line_in_the_middle_is_an_error_with_its_number(tmp_path: Path, total: int, place: int) -> None:
    path = tmp_path / "j"
    lines = written(path, some(total)).splitlines(keepends=True)
    lines[place] = lines[place].replace(b'"write"', b'"wrong"')
    path.write_bytes(b"".join(lines))
    with pytest.raises(HistoryError, match=rf"j:{place + 1}: the line does not match its CRC"):
        read_journal(path)


def test_a_line_without_crc_is_no_line_of_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "j"
    whole = written(path, some(1))
    path.write_bytes(b'{"process":1}\n' + whole)
    with pytest.raises(HistoryError, match="j:1: the line has no CRC"):
        read_journal(path)


def test_a_missing_journal_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="the journal cannot be read: No such file"):
        read_journal(tmp_path / "none")


def test_two_runs_never_share_a_journal(tmp_path: Path) -> None:
    written(tmp_path / "j", some(1))
    with pytest.raises(StoreError, match="the journal cannot be written: File exists"):
        Journal(tmp_path / "j")


def test_ops_reach_the_kernel_and_the_disk_without_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = threading.Event()
    fsync = os.fsync

    def seen(fd: int) -> None:
        fsync(fd)
        if threading.current_thread().name == "journal":
            synced.set()

    monkeypatch.setattr(os, "fsync", seen)
    journal = Journal(tmp_path / "j")
    ops = some(3)
    for op in ops:
        journal.append(op)
    assert synced.wait(60)
    assert read_journal(tmp_path / "j") == (ops, None)
    journal.close()
    journal.close()


def test_a_full_disk_is_raised_by_the_next_append_and_by_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    journal = Journal(tmp_path / "j")
    monkeypatch.setattr(journals.os, "write", full)
    journal.append(some(1)[0])
    journal._thread.join(60)
    wanted = r"j: the journal cannot be written: No space left on device \(.* free\)$"
    with pytest.raises(StoreError, match=wanted):
        journal.append(some(1)[0])
    with pytest.raises(StoreError, match=wanted):
        journal.close()


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(journals.os, "write", lambda fd, data: write(fd, bytes(data[:7])))
    ops = some(20)
    written(tmp_path / "j", ops)
    assert read_journal(tmp_path / "j") == (ops, None)


def test_a_real_full_disk(tmp_path: Path) -> None:
    """`/dev/full` takes nothing, on any Linux."""
    link = tmp_path / "j"
    journal = Journal(link)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, journal._fd)
    os.close(full)
    journal.append(some(1)[0])
    with pytest.raises(StoreError, match="No space left on device"):
        journal.close()


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, object()])
def test_what_is_no_json_value_is_refused_and_named(tmp_path: Path, value: object) -> None:
    with Journal(tmp_path / "j") as journal:
        with pytest.raises(ValueError, match=r"op 7 \(write\) cannot be journalled"):
            journal.append(Op(7, 0, 0, "invoke", "write", value=value))
        journal.append(some(1)[0])
    assert read_journal(tmp_path / "j") == (some(1), None)


def test_after_close_nothing_is_taken(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    journal.close()
    with pytest.raises(StoreError, match="after the journal was closed"):
        journal.append(some(1)[0])


def test_many_threads_may_append(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        threads = [threading.Thread(target=lambda: [journal.append(op) for op in some(500)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    ops, torn = read_journal(tmp_path / "j")
    assert torn is None
    assert sorted(op.index for op in ops) == sorted(list(range(500)) * 4)
