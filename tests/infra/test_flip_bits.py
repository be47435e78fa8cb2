# SPDX-License-Identifier: Apache-2.0
"""Bits flipped in the files of real brokers (tests/data/rocketmq), and in logs written as the readers expect them."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra.machines.api import Completed, InfraError
from infra.machines.primitives.bits import (
    Choice,
    FileKind,
    Flip,
    Loss,
    Part,
    Where,
    bytes_at,
    cut_file,
    flip_bits,
    size_of,
    why_not,
)
from infra.systems.dledger.layouts import DLEDGER_FILES
from infra.systems.rocketmq.store.commitlog import Damage, Record, read_commit_log, read_dledger_log
from infra.systems.rocketmq.store.layouts import BROKER_FILES, RAFT_BROKER_FILES

STORES = Path(__file__).parent.parent / "data" / "rocketmq" / "stores-5.5.0.zip"
PARTS: tuple[Part, ...] = ("body", "header", "size", "crc")


class ThisMachine:
    """A node whose commands run here."""

    name = "n1"

    def run(self, argv: list[str], *, timeout_s: float = 30, check: bool = True) -> Completed:
        words = [sys.executable, *argv[1:]] if argv[0] == "python3" else argv
        done = subprocess.run(words, capture_output=True, timeout=timeout_s, check=False)
        return Completed(argv, done.returncode, done.stdout, done.stderr, 0.0)


NODE: Any = ThisMachine()


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    with zipfile.ZipFile(STORES) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if "/index/" not in name])
    return folder


@pytest.fixture
def broker(unpacked: Path, tmp_path: Path) -> Path:
    """A broker's folder of data, with its store in `store`."""
    copied(unpacked / "controller" / "n1", tmp_path / "store")
    return tmp_path


@pytest.fixture
def raft_broker(unpacked: Path, tmp_path: Path) -> Path:
    copied(unpacked / "dledger" / "n1", tmp_path / "store")
    return tmp_path


def copied(source: Path, target: Path) -> None:
    for file in source.rglob("*"):
        if file.is_file():
            (target / file.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
            (target / file.relative_to(source)).write_bytes(file.read_bytes())


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def flipped(
    folder: Path,
    files: Mapping[str, FileKind],
    *,
    part: Part = "body",
    where: Where = "last",
    count: int = 1,
    seed: int = 1,
) -> list[Flip]:
    """Flip bits, and see that these are all that differs."""
    before = bytes_of(folder)
    flips = flip_bits(NODE, [str(folder)], Choice(count, part, where, seed, files))
    after = bytes_of(folder)
    different = {
        (path, at, old ^ new)
        for path, data in after.items()
        for at, (old, new) in enumerate(zip(before[path], data, strict=True))
        if old != new
    }
    bits: dict[tuple[str, int], int] = {}
    for flip in flips:
        bits[flip.file, flip.offset] = bits.get((flip.file, flip.offset), 0) ^ (1 << flip.bit)
        assert flip.after == flip.before ^ (1 << flip.bit)
    assert {(*place, mask) for place, mask in bits.items()} == different
    assert len({(flip.file, flip.offset, flip.bit) for flip in flips}) == count == len(flips)
    return flips


def only(kind: str, files: Mapping[str, FileKind] = BROKER_FILES) -> dict[str, FileKind]:
    return {kind: files[kind]}


def intact_and_not(folder: Path) -> tuple[int, int]:
    found = list(read_commit_log(folder))
    good = sum(isinstance(one, Record) and one.intact for one in found)
    return good, len(found) - good


@pytest.mark.parametrize("seed", range(5))
def test_the_last_body(broker: Path, seed: int) -> None:
    log = broker / "store" / "commitlog"
    last = [one for one in read_commit_log(log) if isinstance(one, Record)][-1]
    (flip,) = flipped(broker, only("commitlog"), seed=seed)
    assert (flip.kind, flip.record + int(Path(flip.file).name)) == ("commitlog", last.physical)
    assert flip.size == last.size
    head = flip.record + 88
    assert head <= flip.offset < head + len(last.message.body)
    assert intact_and_not(log) == (167, 1)


def test_random_bodies(broker: Path) -> None:
    log = broker / "store" / "commitlog"
    flips = flipped(broker, only("commitlog"), where="random", count=20)
    assert len({flip.record for flip in flips}) > 5
    assert len({flip.file for flip in flips}) == 2
    assert intact_and_not(log)[1] == len({(flip.file, flip.record) for flip in flips})


@pytest.mark.parametrize(("part", "places"), [("size", (0, 4)), ("crc", (8, 12))])
def test_fields_of_a_message(broker: Path, part: Part, places: tuple[int, int]) -> None:
    (flip,) = flipped(broker, only("commitlog"), part=part)
    assert places[0] <= flip.offset - flip.record < places[1]
    found = list(read_commit_log(broker / "store" / "commitlog"))
    assert isinstance(found[-1], Damage) if part == "size" else not found[-1].intact  # type: ignore[union-attr]


def test_the_parts_do_not_overlap(broker: Path) -> None:
    """All bits of each part of the last record: together they are its fixed part and its body."""
    last = [one for one in read_commit_log(broker / "store" / "commitlog") if isinstance(one, Record)][-1]
    sizes = {"body": len(last.message.body), "header": 80, "size": 4, "crc": 4}
    hit: set[int] = set()
    for part in PARTS:
        copied_to = broker.parent / f"{broker.name}-{part}"
        copied(broker, copied_to)
        flips = flipped(copied_to, only("commitlog"), part=part, count=8 * sizes[part])
        places = {flip.offset - flip.record for flip in flips}
        assert len(places) == sizes[part]
        assert not hit & places
        hit |= places
    assert hit == set(range(88 + len(last.message.body)))


@pytest.mark.parametrize(("part", "places"), [("header", (0, 8)), ("size", (8, 12)), ("body", (12, 20))])
def test_units_of_a_consume_queue(broker: Path, part: Part, places: tuple[int, int]) -> None:
    flips = flipped(broker, only("consumequeue"), part=part, where="random", count=30)
    assert all(places[0] <= flip.offset % 20 < places[1] for flip in flips)
    assert all((flip.record % 20, flip.size) == (0, 20) for flip in flips)
    assert len({Path(flip.file).parent for flip in flips}) == 3, "any of the queues"


def test_the_last_unit_of_a_queue_is_one_that_was_written(broker: Path) -> None:
    (flip,) = flipped(broker, only("consumequeue"), part="header")
    queue = Path(flip.file)
    data = bytearray(queue.read_bytes())
    data[flip.offset] = flip.before
    physical, size, _ = struct.unpack_from(">qiq", data, flip.record)
    assert (physical, size) != (0, 0)
    assert not any(data[flip.record + 20 :]), "nothing follows"


def test_an_entry_of_dledger(raft_broker: Path) -> None:
    folder = raft_broker / "store" / "dledger-n0" / "data"
    before = [one for one in read_dledger_log(folder) if isinstance(one, Record)]
    (flip,) = flipped(raft_broker, only("dledger-data", RAFT_BROKER_FILES))
    after = list(read_dledger_log(folder))
    assert after[:-1] == before[:-1]
    assert after[-1] != before[-1]
    assert flip.record + 48 == before[-1].physical
    (crc,) = flipped(raft_broker, only("dledger-data", RAFT_BROKER_FILES), part="crc")
    assert 36 <= crc.offset - crc.record < 44
    assert crc.before == 0, "DLedger never sets them"


def test_units_of_dledgers_index(tmp_path: Path) -> None:
    """Magic, position, size, index, term; a file made ahead ends in NULs."""
    folder = tmp_path / "dledger-n1" / "index"
    folder.mkdir(parents=True)
    units = b"".join(struct.pack(">iqiqq", 1 + n % 2, n * 60, 60, n, 3) for n in range(10))
    (folder / f"{0:020}").write_bytes(units + bytes(1000))
    for part, places in (("body", (4, 12)), ("size", (12, 16)), ("header", (16, 32))):
        flips = flipped(tmp_path, only("dledger-index", DLEDGER_FILES), part=part, count=4)  # type: ignore[arg-type]
        assert all(flip.record == 9 * 32 for flip in flips)
        offsets = {flip.offset - flip.record for flip in flips}
        assert all(places[0] <= at < places[1] or (part == "header" and at < 4) for at in offsets)


def test_a_record_that_is_cut_off_is_none(tmp_path: Path) -> None:
    """The last entry's body is longer than the file, and one that lies elsewhere than it says is a leftover."""
    folder = tmp_path / "dledger-n1" / "data"
    folder.mkdir(parents=True)

    def entry(at: int, body: bytes, length: int) -> bytes:
        return struct.pack(">iiqqqiiii", 1, 48 + length, 0, 1, at, 0, 0, 0, length) + body

    whole = entry(0, b"abcd", 4)
    (folder / f"{0:020}").write_bytes(whole + entry(len(whole), b"xy", 400))
    assert {flip.record for flip in flipped(tmp_path, only("dledger-data", DLEDGER_FILES), count=8)} == {0}
    (folder / f"{0:020}").write_bytes(whole + entry(9999, b"xyz", 3) + bytes(50))
    assert {flip.record for flip in flipped(tmp_path, only("dledger-data", DLEDGER_FILES), count=8)} == {0}


def test_an_entry_without_a_body_has_none_to_flip(tmp_path: Path) -> None:
    folder = tmp_path / "dledger-n1" / "data"
    folder.mkdir(parents=True)
    first = struct.pack(">iiqqqiiii", 1, 50, 0, 1, 0, 0, 0, 0, 2) + b"ab"
    noop = struct.pack(">iiqqqiiii", 2, 48, 1, 1, 50, 0, 0, 0, 0)
    (folder / f"{0:020}").write_bytes(first + noop + bytes(200))
    assert flipped(tmp_path, only("dledger-data", DLEDGER_FILES))[0].record == 0
    assert flipped(tmp_path, only("dledger-data", DLEDGER_FILES), part="crc")[0].record == 50


def test_files_without_records(broker: Path) -> None:
    """Any byte that was written, and none behind it."""
    (broker / "store" / "checkpoint").write_bytes(b"\0\0\0\1" + bytes(4092))
    (flip,) = flipped(broker, only("checkpoint"), part="any")
    assert (flip.offset, flip.before) == (3, 1)
    (flip,) = flipped(broker, only("epoch"), part="any")
    assert flip.file.endswith("epochFileCheckpoint")
    (flip,) = flipped(broker, BROKER_FILES, part="any", seed=3)
    assert flip.kind in BROKER_FILES


def test_the_same_seed_hits_the_same_bit(broker: Path) -> None:
    files = only("commitlog")
    first = flipped(broker, files, where="random", count=3, seed=8)
    again = flipped(broker, files, where="random", count=3, seed=8)
    assert [(f.file, f.offset, f.bit) for f in first] == [(f.file, f.offset, f.bit) for f in again]
    assert [f.after for f in again] == [f.before for f in first], "flipped back"


def test_reading_back(broker: Path) -> None:
    flips = flipped(broker, only("commitlog"), where="random", count=3)
    assert bytes_at(NODE, flips) == [flip.after for flip in flips]
    path = Path(flips[0].file)
    path.write_bytes(path.read_bytes()[: flips[0].offset])
    assert bytes_at(NODE, flips[:1]) == [-1]
    path.unlink()
    assert bytes_at(NODE, flips[:1]) == [-1]


def test_nothing_to_flip(tmp_path: Path, broker: Path) -> None:
    with pytest.raises(InfraError, match=r"n1: flip of bits failed: no whole record .*/store/index"):
        flip_bits(NODE, [str(broker)], Choice(1, "any", "last", 1, only("index")))
    with pytest.raises(InfraError, match="fewer than 33 bits are there to be flipped"):
        flip_bits(NODE, [str(broker)], Choice(33, "size", "last", 1, only("commitlog")))


def test_a_node_without_python() -> None:
    lacking: Any = SimpleNamespace(name="n2", run=lambda argv, **_: Completed(argv, 127, b"", b"", 0.0))
    assert why_not(lacking) == "n2 has no working python3: install it there (Debian: python3-minimal)"
    assert why_not(NODE) is None


def test_a_flip_in_words() -> None:
    flip = Flip("commitlog", "/d/0", 100, 3, 0x41, 0x49, 88, 200)
    assert str(flip) == "bit 3 of byte 100 of /d/0 (commitlog record of 200 bytes at 88): 0x41 -> 0x49"


SNAPSHOT = {"snapshot": FileKind("**/snapshot/snapshot_*/data")}


@pytest.mark.parametrize(("loss", "left"), [("torn", 5), ("empty", 0), ("missing", -1)])
def test_the_newest_file_is_cut_off(tmp_path: Path, loss: Loss, left: int) -> None:
    old, new = (tmp_path / "store" / "snapshot" / f"snapshot_{n}" / "data" for n in (9, 10))
    for at, file in enumerate((old, new)):
        file.parent.mkdir(parents=True)
        file.write_bytes(b"0123456789")
        os.utime(file, (at, at))
    cut = cut_file(NODE, [str(tmp_path)], SNAPSHOT, loss)
    assert (cut.file, cut.before, cut.after) == (str(new), 10, left)
    assert size_of(NODE, cut.file) == left
    assert old.read_bytes() == b"0123456789"
    assert ("is gone" in str(cut)) == (loss == "missing")


def test_no_file_to_cut_off_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match="there is no such file") as error:
        cut_file(NODE, [str(tmp_path)], SNAPSHOT, "torn")
    assert "\n" not in str(error.value)
