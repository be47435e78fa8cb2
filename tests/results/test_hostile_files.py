# SPDX-License-Identifier: Apache-2.0
"""Files that were cut, changed or filled with rubbish: a history, or one line with the place. Never anything else."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from effort import effort

from results.formats import HistoryError, read_history, write_edn, write_jsonl
from results.op import Op
from results.sealed import seal

OPS = [
    Op(0, 10, 0, "invoke", "write", "k", {"a": [1, "ü", None]}),
    Op(1, 20, 1, "invoke", "cas", "k", [1, 2.5]),
    Op(2, 30, -1, "invoke", "kill", None, ["n1"]),
    Op(3, 40, 0, "ok", "write", "k", {"a": [1, "ü", None]}, None, {"node": "n2"}),
    Op(4, 50, 1, "info", "cas", "k", [1, 2.5], "timed out"),
    Op(5, 60, -1, "info", "kill", None, ["n1"]),
]
ETCD = """\
INFO  jepsen.util - 4\t:invoke\t:read\tnil
INFO  jepsen.core - something else
INFO  jepsen.util - 3   :invoke :cas    [3 4]
INFO  jepsen.util - 4\t:ok\t:read\tnil
INFO  jepsen.util - 3   :info   :cas    :timed-out
"""
KV = """\
{:process 0, :type :invoke, :f :append, :key "7", :value "x 0 0 y"}
{:process 1, :type :invoke, :f :get, :key "7", :value nil}
{:process 0, :type :ok, :f :append, :key "7", :value "x 0 0 y"}
{:process 1, :type :ok, :f :get, :key "7", :value ""}
"""
PLAIN = '{"process":0,"type":"invoke","f":"write","value":3}\n{"process":0,"type":"ok","f":"write","value":3}\n'
RECORDS = """\
{"client":0,"op":"write","key":"x","value":1,"start":10,"end":20.5}
{"client":"b","op":"cas","key":"x","input":[1,2],"output":false,"start":12,"end":null,"error":"e"}
"""
PORCUPINE = """\
[{"ClientId":0,"Input":{"Op":1,"Key":"a","Value":"x"},"Call":1,"Output":{"Value":""},"Return":5},
 {"ClientId":0,"Input":{"Op":0,"Key":"a"},"Call":6,"Output":{"Value":"x","Err":""},"Return":7}]
"""
EVENTS = """\
{"ClientId":0,"Kind":false,"Value":{"Op":"put","Key":"a","Value":"x"},"Id":0}
{"ClientId":0,"Kind":true,"Value":{},"Id":0}
"""
ETCD_JSON = """\
{"ClientID":1,"Input":{"Type":"txn","Range":null,"Txn":{"Conditions":null,"OperationsOnSuccess":[{"Type":"put-operation",\
"Put":{"Key":"a","Value":{"Value":"1"},"LeaseID":0}}]}},"Call":1,"Output":{"Txn":{"Results":[{}]},"Revision":2},"Return":2}
{"ClientID":1,"Input":{"Type":"range","Txn":null,"Range":{"Start":"a","End":""}},"Call":3,\
"Output":{"Range":{"KVs":[{"Key":"a","Value":{"Value":"1"}}],"Count":1},"Revision":2},"Return":5}
"""
HISTORY_TXT = """\
0\t:invoke\t:write\t1
:nemesis\t:info\t:start\t["n1"]
0\t:info\t:write\t1\tjava.lang.Error: x
\tat y
"""
OPENCHAOS = """\
0\tenqueue\tREQUEST\t1\tk\t1700000000000\tnull
0\tenqueue\tRESPONSE\tSUCCESS\t1\tk\t1700000000010\t10\tnull\t0
fault\tminor-kill\tstart\t1700000000011
1\tdequeue\tRESPONSE\tSUCCESS\t1\tk\t1700000000020\t5\tnull\t12
"""


def written(write: Callable[[list[Op], Path], object], folder: Path) -> bytes:
    write(OPS, folder / "made")
    return (folder / "made").read_bytes()


MAKERS: dict[str, Callable[[Path], bytes]] = {
    "jsonl": lambda folder: written(write_jsonl, folder),
    "plain jsonl": lambda folder: PLAIN.encode(),
    "edn": lambda folder: written(write_edn, folder),
    "porcupine-etcd": lambda folder: ETCD.encode(),
    "porcupine-kv": lambda folder: KV.encode(),
    "records": lambda folder: RECORDS.encode(),
    "a table": lambda folder: b'client,op,value,start,end\n0,write,"1",10,20\nb,read,1,12,\n',
    "porcupine": lambda folder: PORCUPINE.encode(),
    "porcupine events": lambda folder: EVENTS.encode(),
    "etcd": lambda folder: ETCD_JSON.encode(),
    "jepsen-txt": lambda folder: HISTORY_TXT.encode(),
    "openchaos": lambda folder: OPENCHAOS.encode(),
    "parquet": lambda folder: written(seal, folder),
    "gzip": lambda folder: gzip.compress(written(write_jsonl, folder), mtime=0),
}


def told(path: Path, data: bytes) -> str | None:
    """The message about a bad file, or None. Anything but a HistoryError fails the test."""
    path.write_bytes(data)
    try:
        read_history(path)
    except HistoryError as problem:
        line = str(problem)
    else:
        return None
    assert line.startswith(str(path))
    assert "\n" not in line
    return line


@pytest.mark.parametrize("name", MAKERS)
def test_a_file_cut_anywhere(name: str, tmp_path: Path) -> None:
    data = MAKERS[name](tmp_path)
    assert told(tmp_path / "file", data) is None
    step = max(1, len(data) // (effort(150)))
    cut = [told(tmp_path / "file", data[:end]) for end in range(0, len(data), step)]
    assert any(cut)


@pytest.mark.parametrize("name", MAKERS)
def test_a_file_with_changed_bytes(name: str, tmp_path: Path) -> None:
    data, rng = MAKERS[name](tmp_path), Random(name)
    found = [told(tmp_path / "file", bytes(changed)) for changed in _changed(data, rng)]
    assert any(found)


def _changed(data: bytes, rng: Random) -> Iterator[bytearray]:
    """One to three bytes are others, are gone, or are there twice."""
    for _ in range(effort(100)):
        changed = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(changed))
            changed[at : at + 1] = rng.choice((b"", bytes([rng.randrange(256)]), changed[at : at + 1] * 2))
        yield changed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[{:process 0 :type :invoke :f :write\n :value %s}]" % ("9" * 5_000), ":2: a number of 5,000 digits"),
        ('{"process":0,"type":"invoke","f":"write","value":%s}\n' % ("9" * 5_000), ":1: not a JSON object"),
        ("INFO  jepsen.util - 4\t:invoke\t:write\t%s\n" % ("9" * 5_000), ":1: the value cannot be read: a number of"),
        ("INFO  jepsen.util - %s\t:invoke\t:read\tnil\n" % ("9" * 5_000), ":1: "),
    ],
)
def test_numbers_without_end(text: str, said: str, tmp_path: Path) -> None:
    assert said in (told(tmp_path / "file", text.encode()) or "")
