# SPDX-License-Identifier: Apache-2.0
"""Files of real brokers (tests/data/rocketmq) are read whole, and every kind of damage to them is reported."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.systems.dledger.entries import summarize_entries
from infra.systems.rocketmq.message_body import body_of, id_of
from infra.systems.rocketmq.servers import artifacts
from infra.systems.rocketmq.store.commitlog import Damage, Record, read_commit_log, read_dledger_log
from infra.systems.rocketmq.store.consumequeue import consume_queues, read_consume_queue
from infra.systems.rocketmq.store.epochs import Epoch, read_epochs
from infra.systems.rocketmq.store.errors import StorageError
from infra.systems.rocketmq.store.identity import Identity, read_identity
from infra.systems.rocketmq.store.summary import LINE, summarize, tag_hash

STORES = Path(__file__).parent.parent / "data" / "rocketmq" / "stores-5.5.0.zip"
SENT = [*range(1, 121), *range(201, 221), *range(301, 320), *range(401, 410)]


@pytest.fixture
def stores(tmp_path: Path) -> Path:
    """The files that the brokers left behind, unpacked."""
    with zipfile.ZipFile(STORES) as archive:
        archive.extractall(tmp_path)
    return tmp_path


def records(folder: Path) -> list[Record]:
    found = list(read_commit_log(folder))
    assert all(isinstance(one, Record) for one in found), found[-1]
    return [one for one in found if isinstance(one, Record)]


@pytest.mark.parametrize("node", ["n1", "n2"])
@pytest.mark.slow
def test_a_commit_log_holds_every_message_in_order(stores: Path, node: str) -> None:
    found = records(stores / "controller" / node / "commitlog")
    assert [id_of(record.message.body) for record in found] == SENT
    assert all(record.intact for record in found)
    assert {record.message.topic for record in found} == {"log-fixture", "big"}
    assert {record.message.store_host for record in found[:140]} == {"127.0.0.1:25911"}
    assert {record.message.store_host for record in found[140:]} == {"127.0.0.1:25921"}, "who took it, not who holds it"
    assert found[4].message.properties["TAGS"] == "t"


def test_the_log_goes_on_in_the_next_file(stores: Path) -> None:
    found = records(stores / "controller" / "n1" / "commitlog")
    assert found[0].physical < 65536 <= found[-1].physical
    for before, after in pairwise(found):
        assert after.physical == before.physical + before.size or after.physical == 65536


def test_the_index_leads_to_every_message(stores: Path) -> None:
    store = stores / "controller" / "n2"
    by_place = {record.physical: record for record in records(store / "commitlog")}
    seen = 0
    for topic, queue, folder in consume_queues(store / "consumequeue"):
        for n, entry in enumerate(read_consume_queue(folder)):
            record = by_place[entry.physical]
            message = record.message
            assert (message.topic, message.queue, message.offset) == (topic, queue, entry.offset)
            assert record.size == entry.size
            assert entry.offset == n
            seen += 1
    assert seen == len(SENT)


def test_a_dledger_log_holds_every_message(stores: Path) -> None:
    found = list(read_dledger_log(stores / "dledger" / "n1" / "dledger-n0" / "data"))
    assert [id_of(r.message.body) for r in found if isinstance(r, Record)] == list(range(1, 60))
    assert all(isinstance(r, Record) and r.intact and r.term == 1 for r in found)


def test_epochs_and_identity(stores: Path) -> None:
    store = stores / "controller" / "n2"
    assert read_epochs(store / "epochFileCheckpoint") == [Epoch(1, 0), Epoch(2, 111681)]
    assert read_identity(store / "brokerIdentity") == Identity("harness", "a", 2)
    second = next(r for r in records(store / "commitlog") if id_of(r.message.body) == 301)
    assert second.physical == 111681, "the epoch begins with the new master's first message"


def test_a_flipped_bit_in_a_body_breaks_its_checksum(stores: Path) -> None:
    file = stores / "controller" / "n1" / "commitlog" / f"{0:020}"
    before = records(file.parent)[10]
    data = bytearray(file.read_bytes())
    data[data.index(b"11 xxxxxxxxxxx", before.physical)] ^= 1
    file.write_bytes(data)
    after = records(file.parent)
    assert [n for n, record in enumerate(after) if not record.intact] == [10]


def test_bytes_that_are_no_record_end_the_log_with_damage(stores: Path) -> None:
    file = stores / "controller" / "n1" / "commitlog" / f"{0:020}"
    third = records(file.parent)[3].physical
    data = bytearray(file.read_bytes())
    data[third + 4] ^= 0xFF
    file.write_bytes(data)
    *good, last = read_commit_log(file.parent)
    assert len(good) == 3
    assert isinstance(last, Damage)
    assert last.physical == third


def test_a_missing_file_in_the_middle_is_named(stores: Path) -> None:
    folder = stores / "controller" / "n1" / "commitlog"
    (folder / f"{65536:020}").rename(folder / f"{131072:020}")
    with pytest.raises(StorageError, match="ends at 65536, but the next file begins at 131072"):
        list(read_commit_log(folder))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2\n171637273\n1-0\n2-111682\n", "the CRC-32 of its entries is"),
        ("3\n171637273\n1-0\n2-111681\n", "says that it has 3 entries and has 2"),
        ("", "should begin with the number"),
        ("1\n2319120921\nx\n", "CRC-32"),
    ],
)
def test_a_damaged_epoch_file_is_told(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "epochFileCheckpoint"
    path.write_text(text)
    with pytest.raises(StorageError, match=said):
        read_epochs(path)


def test_a_damaged_identity_is_told(tmp_path: Path) -> None:
    (tmp_path / "brokerIdentity").write_text("harness#a")
    with pytest.raises(StorageError, match="is not CLUSTER#NAME#ID"):
        read_identity(tmp_path / "brokerIdentity")


@given(at=st.integers(0, 3000), junk=st.binary(min_size=1, max_size=60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.slow
def test_torn_bytes_are_damage_and_never_an_exception(stores: Path, at: int, junk: bytes) -> None:
    for folder, read in (
        ("controller/n1/commitlog", read_commit_log),
        ("dledger/n1/dledger-n0/data", read_dledger_log),
    ):
        with zipfile.ZipFile(STORES) as archive:
            data = archive.read(f"{folder}/{0:020}")[:4096]
        file = stores / "torn" / f"{0:020}"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data[:at] + junk + data[at + len(junk) :])
        found = list(read(file.parent))
        assert all(isinstance(one, Record) for one in found[:-1]), "damage comes last"


def test_a_summary_tells_what_the_index_does_not_name(stores: Path) -> None:
    store = stores / "controller" / "n1"
    queue = store / "consumequeue" / "log-fixture" / "0" / f"{0:020}"
    data = bytearray(queue.read_bytes())
    lost = struct.unpack_from(">q", data, 5 * 20)[0]
    struct.pack_into(">q", data, 5 * 20, 999_999)
    queue.write_bytes(data)
    head, *rest = [json.loads(line) for line in summarize(store, "a", {"log-fixture"})]
    assert head["head"]["epochs"] == [[1, 0], [2, 111681]]
    assert head["head"]["identity"] == ["harness", "a", 1]
    assert head["head"]["problems"] == []
    messages = [dict(zip(LINE, line, strict=True)) for line in rest if isinstance(line, list)]
    assert len(messages) == len(SENT) - 20
    assert [m["physical"] for m in messages if not m["indexed"]] == [lost]
    assert [line["dangling"][:4] for line in rest if "dangling" in line] == [["log-fixture", 0, 5, 999_999]]
    assert sum("other" in line for line in rest) == 20, "records of other topics"
    assert all(m["tagged"] for m in messages)


def test_a_summary_goes_on_behind_zeros(stores: Path) -> None:
    """Zeros as a broker with a full disk leaves them: the records behind them are reported, and marked as such."""
    store = stores / "controller" / "n1"
    file = store / "commitlog" / f"{0:020}"
    third, fourth = (record.physical for record in records(file.parent)[3:5])
    data = bytearray(file.read_bytes())
    data[third:fourth] = bytes(fourth - third)
    file.write_bytes(data)
    assert len(list(read_commit_log(file.parent))) == 3
    head, *rest = [json.loads(line) for line in summarize(store, "a", {"log-fixture"})]
    assert head["head"]["problems"] == [f"at {third} of the log: zeros, and a whole record behind them"]
    assert head["head"]["end"] == third
    behind = [line["behind"] for line in rest if "behind" in line]
    assert len([line for line in rest if isinstance(line, list)]) == 3
    assert behind[0][LINE.index("physical")] == fourth
    assert len(behind) == len(SENT) - 20 - 4


def test_the_hash_of_a_tag_is_javas() -> None:
    assert [tag_hash(tag) for tag in ("", "t", "TagA", "polygenelubricants")] == [0, 116, 2598919, -2147483648]


def test_the_entries_of_a_dledger_log(stores: Path) -> None:
    folder = stores / "dledger" / "n1"
    head, *rest = [json.loads(line) for line in summarize_entries(folder, "g")]
    assert head == {"head": {"group": "g", "files": "entries", "problems": []}}
    assert [line["other"][0] for line in rest] == list(range(len(rest)))
    file = folder / "dledger-n0" / "data" / f"{0:020}"
    data = bytearray(file.read_bytes())
    data[48 + 60] ^= 1  # in the body of the first one
    file.write_bytes(data)
    changed = [json.loads(line) for line in summarize_entries(folder, "g")][1:]
    assert sum(one != other for one, other in zip(rest, changed, strict=True)) == 1


def test_a_summary_goes_on_where_a_file_is_damaged(stores: Path) -> None:
    store = stores / "controller" / "n1"
    (store / "epochFileCheckpoint").write_text("1\n1\n1-0\n")
    head, *rest = [json.loads(line) for line in summarize(store, "a", {"log-fixture"})]
    assert "CRC-32" in head["head"]["problems"][0]
    assert rest


def test_a_folder_that_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="neither a commitlog nor a dledger"):
        list(summarize(tmp_path, "a", {"t"}))


@given(st.integers(1, 10**18 - 1), st.integers(0, 300))
def test_a_body_names_its_id(message: int, size: int) -> None:
    body = body_of(message, size)
    assert id_of(body) == message
    assert len(body) >= min(size, len(body))


@pytest.mark.parametrize("body", [b"", b"x1", b"01 a", b"-1", b"\xff\x00"])
def test_a_foreign_body_is_shown_as_such(body: bytes) -> None:
    assert id_of(body) == f"?{body.hex()}"


# Queues in RocksDB.


@pytest.fixture
def rocksdb(tmp_path: Path) -> Path:
    """The files of a store of the type `defaultRocksDB` after its end."""
    with zipfile.ZipFile(STORES.with_name("rocksdb-5.5.0.zip")) as archive:
        archive.extractall(tmp_path)
    return tmp_path


def newest_jars() -> Path:
    return artifacts.fetch("5.5.0")


def of_rocksdb(store: Path, jars: Callable[[], Path] | None) -> tuple[list[str], list[dict[str, object]], list[str]]:
    """The problems, the messages, and the entries that lead nowhere."""
    head, *rest = [json.loads(line) for line in summarize(store, "a", {"log-fixture"}, jars)]
    messages = [dict(zip(LINE, line, strict=True)) for line in rest if isinstance(line, list)]
    return head["head"]["problems"], messages, [line["dangling"][:3] for line in rest if "dangling" in line]


@pytest.mark.slow
def test_queues_in_rocksdb_are_read_with_the_brokers_own_jar(rocksdb: Path) -> None:
    """RocksDB's files have no layout here; without a reader, every message would be one that no index names."""
    problems, messages, dangling = of_rocksdb(rocksdb, newest_jars)
    assert (problems, dangling) == ([], [])
    assert [message["id"] for message in messages] == [n for n in range(1, 61) if n % 6]
    assert all(message["indexed"] and message["tagged"] for message in messages)


@pytest.mark.slow
def test_a_message_that_rocksdb_does_not_name_is_found(rocksdb: Path) -> None:
    """Planted in the log: a message that says another offset than its entry, and one with another tag."""
    log = rocksdb / "commitlog" / f"{0:020}"
    data = bytearray(log.read_bytes())
    found = [one for one in records(log.parent) if one.message.topic == "log-fixture"]
    moved, tagged = found[7], next(one for one in found if one.message.properties.get("TAGS") == "t")
    struct.pack_into(">q", data, moved.physical + 20, 999)
    at = data.index(b"TAGS\1t", tagged.physical)
    data[at : at + 6] = b"TAGS\1u"
    log.write_bytes(data)
    problems, messages, dangling = of_rocksdb(rocksdb, newest_jars)
    assert problems == []
    assert [m["physical"] for m in messages if not m["indexed"]] == [moved.physical]
    assert [m["physical"] for m in messages if m["indexed"] and not m["tagged"]] == [tagged.physical]
    assert dangling == [["log-fixture", moved.message.queue, moved.message.offset]]


def test_queues_in_rocksdb_that_cannot_be_read_are_one_problem(rocksdb: Path) -> None:
    """The log is read all the same, and nothing is said of an index that nobody saw."""
    problems, messages, dangling = of_rocksdb(rocksdb, None)
    assert len(problems) == 1
    assert "needs RocketMQ's jars" in problems[0]
    assert {(m["indexed"], m["tagged"], m["intact"]) for m in messages} == {(None, None, True)}
    assert (len(messages), dangling) == (50, [])
    # Its newest entries were in the memory of a broker that did not end in an orderly way.
    (rocksdb / "abort").touch()
    problems, messages, _ = of_rocksdb(rocksdb, newest_jars)
    assert "not stopped in an orderly way" in problems[0]
    assert {m["indexed"] for m in messages} == {None}


@pytest.mark.slow
def test_a_damaged_database_is_one_problem(rocksdb: Path) -> None:
    (rocksdb / "consumequeue" / "CURRENT").write_text("MANIFEST-999999\n")
    problems, messages, _ = of_rocksdb(rocksdb, newest_jars)
    assert "cannot be read" in problems[0]
    assert {m["indexed"] for m in messages} == {None}
