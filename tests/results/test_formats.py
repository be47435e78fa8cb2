# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gzip
from pathlib import Path

import any_ops
import pytest
from hypothesis import given, settings

from results.formats import FORMATS, ForeignHistory, HistoryError, ReadOptions, read_history, write_edn, write_jsonl
from results.op import SERVER_DIED, Op
from results.sealed import seal

ETCD = """\
INFO  jepsen.util - 4\t:invoke\t:read\tnil
INFO  jepsen.util - 3   :invoke :cas    [3 4]
INFO  jepsen.util - 4\t:ok\t:read\tnil
INFO  jepsen.util - 3   :fail   :cas    [3 4]
INFO  jepsen.util - 4\t:invoke\t:write\t2
INFO  jepsen.util - 3\t:invoke\t:read\tnil
INFO  jepsen.util - 3\t:fail\t:read\t:timed-out
INFO  jepsen.util - 4\t:info\t:write\t:timed-out
"""
KV = """\
{:process 0, :type :invoke, :f :append, :key "7", :value "x 0 0 y"}
{:process 1, :type :invoke, :f :get, :key "7", :value nil}
{:process 0, :type :ok, :f :append, :key "7", :value "x 0 0 y"}
{:process 1, :type :ok, :f :get, :key "7", :value ""}
"""
KNOSSOS = """\
; seen on a cluster
[{:process :nemesis, :type :info, :f :kill, :value nil}
 {:process 4, :type :invoke, :f :write, :value 2}
 {:process :nemesis, :type :info, :f :kill, :value nil}
 {:process 4, :type :ok, :f :write, :value 2}
 {:process 6,
  :type :invoke, :f :read, :value 2, :error nil}
 {:process 6, :type :ok, :f :read, :value nil}]
"""


def read(tmp_path: Path, text: str | bytes, format_: str = "auto", **options: object) -> ForeignHistory:
    path = tmp_path / "file"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_history(path, format_, ReadOptions(**options))  # type: ignore[arg-type]


def short(found: ForeignHistory) -> list[tuple[object, ...]]:
    return [(op.process, op.type, op.f, op.key, op.value, op.error) for op in found.history]


def test_etcd_log(tmp_path: Path) -> None:
    found = read(tmp_path, ETCD)
    assert (found.format, found.model) == ("porcupine-etcd", "cas-register")
    assert short(found) == [
        (4, "invoke", "read", None, None, None),
        (3, "invoke", "cas", None, [3, 4], None),
        (4, "ok", "read", None, None, None),
        (3, "fail", "cas", None, [3, 4], None),
        (4, "invoke", "write", None, 2, None),
        (3, "invoke", "read", None, None, None),
        (3, "fail", "read", None, None, "timed-out"),
        (4, "info", "write", None, 2, "timed-out"),
    ]
    assert [op.index for op in found.history] == list(range(8))


def test_a_failed_cas_is_an_observation_only_when_asked(tmp_path: Path) -> None:
    found = read(tmp_path, ETCD, failed_cas="observed")
    assert short(found)[1] == (3, "invoke", "cas-refused", None, [3, 4], None)
    assert short(found)[3] == (3, "ok", "cas-refused", None, [3, 4], None)
    assert found.model == "cas-register"


def test_a_cas_that_failed_for_another_reason_observed_nothing(tmp_path: Path) -> None:
    text = ETCD.replace(":fail   :cas    [3 4]", ":fail   :cas    :timed-out")
    assert short(read(tmp_path, text, failed_cas="observed"))[3] == (3, "fail", "cas", None, [3, 4], "timed-out")


def test_lines_of_other_loggers_are_left_out_and_counted(tmp_path: Path) -> None:
    found = read(tmp_path, "2014-01-02 11:12:13,456 INFO  jepsen.core - Running test\n\n" + ETCD)
    assert len(found.history) == 8
    assert "1 lines that are no events are ignored" in found.notes


def test_kv_log(tmp_path: Path) -> None:
    found = read(tmp_path, KV)
    assert (found.format, found.model) == ("porcupine-kv", "kv")
    assert short(found)[3] == (1, "ok", "get", "7", "", None)
    assert short(found)[0] == (0, "invoke", "append", "7", "x 0 0 y", None)


def test_knossos_file(tmp_path: Path) -> None:
    found = read(tmp_path, KNOSSOS)
    assert (found.format, found.model) == ("edn", "cas-register")
    assert short(found)[:3] == [
        (-1, "invoke", "kill", None, None, None),
        (4, "invoke", "write", None, 2, None),
        (-1, "info", "kill", None, None, None),
    ]
    # The argument that Knossos filled into the read's invocation is not one.
    assert short(found)[4] == (6, "invoke", "read", None, None, None)


def test_a_read_of_nil_is_unrecorded_in_edn_and_unset_in_others(tmp_path: Path) -> None:
    last = short(read(tmp_path, KNOSSOS))[-1]
    assert last == (6, "fail", "read", None, None, "a read without a recorded value")
    assert short(read(tmp_path, KNOSSOS, nil_reads="unset"))[-1] == (6, "ok", "read", None, None, None)
    assert short(read(tmp_path, ETCD, nil_reads="unrecorded"))[2][1] == "fail"


def test_jepsens_history_edn(tmp_path: Path) -> None:
    text = """\
#jepsen.history.Op{:index 0, :time 7, :type :invoke, :process 0, :f :txn, :value [[:read :x nil]]}
#_{:ignored true} {:index 1, :time 9, :type :ok, :process 0, :f :txn, :value [[:read :x 3]], :node "n1"}
"""
    found = read(tmp_path, text)
    assert found.model == "multi-register"
    assert found.notes == []
    assert list(found.history) == [
        Op(0, 7, 0, "invoke", "txn", value=[["read", "x", None]]),
        Op(1, 9, 0, "ok", "txn", value=[["read", "x", 3]], extra={"node": "n1"}),
    ]


def test_independent_keys(tmp_path: Path) -> None:
    text = "[{:process 0 :type :invoke :f :write :value [5 1]} {:process 0 :type :ok :f :write :value [5 1]}]"
    assert short(read(tmp_path, text, independent=True))[1] == (0, "ok", "write", "5", 1, None)


def test_a_process_that_goes_on_after_info_gets_a_new_number(tmp_path: Path) -> None:
    lines = [
        '{"process":1,"type":"invoke","f":"write","value":1}',
        '{"process":1,"type":"info","f":"write"}',
        '{"process":1,"type":"invoke","f":"write","value":2}',
        '{"process":4,"type":"invoke","f":"read"}',
        '{"process":1,"type":"info","f":"write"}',
        '{"process":1,"type":"invoke","f":"write","value":3}',
    ]
    found = read(tmp_path, "\n".join(lines))
    assert [op.process for op in found.history] == [1, 1, 5, 4, 5, 6]
    assert [op.value for op in found.history] == [1, 1, 2, None, 2, 3]
    assert "2 processes continued after an info; they get new numbers" in found.notes


def test_what_nobody_invoked_stays_an_event(tmp_path: Path) -> None:
    """A server that died on its own, while the nemesis had something open."""
    ops = [
        Op(0, 1, -1, "invoke", "kill", value="n1"),
        Op(1, 2, -1, "info", SERVER_DIED, value={"node": "n2"}),
        Op(2, 3, -1, "info", "kill", value="n1"),
        Op(3, 4, -1, "info", SERVER_DIED, value={"node": "n1"}),
    ]
    for write in (write_jsonl, write_edn):
        write(ops, tmp_path / "file")
        found = read_history(tmp_path / "file")
        assert (list(found.history), found.notes) == (ops, [])


def test_a_nemesis_with_single_events(tmp_path: Path) -> None:
    text = """[{:process :nemesis :type :info :f :start :time 5} {:process :nemesis :type :info :f :stop :time 9}
               {:process 1 :type :invoke :f :read :time 8}]"""
    found = read(tmp_path, text)
    assert [(op.index, op.type, op.f, op.time) for op in found.history] == [
        (0, "invoke", "start", 5),
        (1, "info", "start", 5),
        (2, "invoke", "stop", 9),
        (3, "invoke", "read", 9),
    ]
    assert len(found.notes) == 2


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (ETCD.replace("4\t:invoke\t:write\t2\n", "4\t:ok\t:read\t3\n"), ":5: process 4 completes a read that it never"),
        (ETCD.replace("3   :fail ", "4   :invoke "), ":5: process 4 invokes a write although its cas is still open"),
        (ETCD.replace("[3 4]", "3", 1), r":2: a cas needs \[from to\], not 3"),
        (ETCD.replace(":fail   :cas", ":done   :cas"), ":4: type is 'done'"),
        (ETCD + "INFO  jepsen.util - 3 what is this\n", ":9: not a line of an etcd log"),
        (ETCD + "INFO  je - 3\t:ok\t:read\t3\n", ":9: not a line of an etcd log"),
        (ETCD.replace("[3 4]", "[3 4", 1), r":2: the value cannot be read: '\[' is never closed"),
        (KV.replace(":process 1, :type :ok", ":process 0, :type :ok"), ":4: process 0 completes a get that it never"),
        (
            KV.replace(':type :ok, :f :get, :key "7"', ':type :ok, :f :get, :key "8"'),
            ":4: process 1 completes a get of key 8",
        ),
        (KV.replace(":f :append, ", "", 1), ":1: an operation needs :f"),
        (KNOSSOS.replace(":process 6,\n", ":process 4.5,\n"), ":6: process is 4.5, neither"),
        (KNOSSOS.replace(":value 2, :error nil}", ":value}"), ":7: a map with a key that has no value"),
        (KNOSSOS.replace(":value 2, :error nil}", ":value 1 :value 2}"), ":7: a map with the key 'value' twice"),
        (KNOSSOS.replace(":value 2, :error nil}", ":value 2)"), r":7: '\)' closes nothing; '{' is open"),
        (KNOSSOS.rstrip().removesuffix("]"), r":2: '\[' is never closed"),
        (KNOSSOS + '"', ":9: a string that is never closed"),
        (KNOSSOS.replace(":value 2}", ":value 2x}", 1), ":3: '2x' is no number"),
        ("[1 2]", ":1: an operation is a map"),
        ('{"process":0,"type":"invoke","f":"read"}\n{"process":0,\n{}\n', ":2: not a JSON object"),
        ('{"process":0,"type":"invoke"}\n', ":1: an operation needs the field 'f'"),
        ('{"process":0,"type":"ok","f":"read"}\n', ":1: process 0 completes a read that it never invoked"),
        ('\n{"process":true,"type":"ok","f":"read"}\n', ":2: process is True"),
        ("hello\n", ":1: of no known format"),
        ("", ": the file is empty"),
        (b"[{:process 1\n \xff}]", ":2: not UTF-8 text"),
        (gzip.compress(ETCD.encode())[:-9], ": cannot be read"),
        (b"PAR1 and no more", ": not a sealed history"),
    ],
)
def test_a_corrupt_file_is_one_line_with_its_place(tmp_path: Path, text: str | bytes, wanted: str) -> None:
    with pytest.raises(HistoryError, match="file" + wanted) as message:
        read(tmp_path, text)
    assert "\n" not in str(message.value)


def test_errors_show_the_line_as_one_sees_it(tmp_path: Path) -> None:
    with pytest.raises(HistoryError) as text:
        read(tmp_path, ETCD + "INFO  jepsen.util - 3\t:ok\t:read\t3\n")
    assert str(text.value).endswith(
        "file:9: process 3 completes a read that it never invoked ('INFO jepsen.util - 3 :ok :read 3')"
    )


def test_files_that_are_not_there_and_formats_that_do_not_exist(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="none: cannot be read: No such file"):
        read_history(tmp_path / "none")
    with pytest.raises(HistoryError, match="a folder, not a history"):
        read_history(tmp_path)
    with pytest.raises(HistoryError, match="no format 'xml'; there are auto, jsonl, edn"):
        read_history(tmp_path, "xml")


@settings(max_examples=40)  # each example syncs files to the disk
@given(ops=any_ops.histories())
def test_our_own_histories_come_back_from_every_format_of_ours(
    tmp_path_factory: pytest.TempPathFactory, ops: list[Op]
) -> None:
    if not ops:
        return
    folder = tmp_path_factory.mktemp("formats")
    write_jsonl(ops, folder / "jsonl")
    write_edn(ops, folder / "edn")
    seal(ops, folder / "parquet")
    for name in ("jsonl", "edn", "parquet"):
        found = read_history(folder / name, options=ReadOptions(nil_reads="unset"))
        assert found.format == name
        assert list(found.history) == ops
        assert found.notes == []


@settings(max_examples=40)  # each example syncs files to the disk
@given(ops=any_ops.histories())
def test_independent_edn_comes_back(tmp_path_factory: pytest.TempPathFactory, ops: list[Op]) -> None:
    path = tmp_path_factory.mktemp("formats") / "edn"
    write_edn(ops, path, independent=True)
    if ops:
        found = read_history(path, "edn", ReadOptions(nil_reads="unset", independent=True))
        assert list(found.history) == ops


def test_gzip(tmp_path: Path) -> None:
    assert short(read(tmp_path, gzip.compress(ETCD.encode()))) == short(read(tmp_path, ETCD))
    write_jsonl(read(tmp_path, KV).history, tmp_path / "plain")
    found = read(tmp_path, gzip.compress((tmp_path / "plain").read_bytes()))
    assert found.history[3].value == ""


def test_a_journal_is_a_history_torn_end_and_all(tmp_path: Path) -> None:
    ops = [Op(0, 0, 0, "invoke", "read"), Op(1, 3, 0, "ok", "read", value=1)]
    write_jsonl(ops, tmp_path / "j")
    whole = (tmp_path / "j").read_bytes()
    found = read(tmp_path, whole + b'{"index":2,"ti')
    assert list(found.history) == ops
    assert found.notes == ["the last 14 bytes were torn and are left out"]
    with pytest.raises(HistoryError, match="file:1: the line does not match its CRC"):
        read(tmp_path, whole.replace(b'"invoke"', b'"inform"'))


def test_a_named_format_is_taken_at_its_word(tmp_path: Path) -> None:
    assert read(tmp_path, KV, "edn").format == "edn"
    with pytest.raises(HistoryError, match="file:1: not a line of an etcd log"):
        read(tmp_path, KV, "porcupine-etcd")
    assert len(set(FORMATS)) == 11
