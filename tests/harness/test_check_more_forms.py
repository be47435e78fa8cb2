# SPDX-License-Identifier: Apache-2.0
"""`harness check` on histories as strangers log them: a good one, the same one with a violation, and no option. What is
refused is one line, which says what would be right; no field that may deny a success is passed over.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.commands import quiet_harness as harness


def lines(*found: dict[str, Any]) -> str:
    return "".join(json.dumps(one) + "\n" for one in found)


def event(process: Any, type_: str, f: str, value: Any = None, **more: Any) -> dict[str, Any]:
    return {"process": process, "type": type_, "f": f, "value": value, **more}


def both(f: str, argument: Any, result: Any, process: Any = 0, ok: str = "ok", **more: Any) -> list[dict[str, Any]]:
    return [event(process, "invoke", f, argument), event(process, ok, f, result, **more)]


def record(client: Any, op: str, start: Any, end: Any, **more: Any) -> dict[str, Any]:
    return {"client": client, "op": op, "start": start, "end": end, **more}


def words(call: str, done: str) -> str:
    """Events without a value where they have none."""
    asked = {"process": 0, "type": call, "f": "write", "value": 1}, {"process": 0, "type": done, "f": "write"}
    return lines(
        *asked, {"process": 1, "type": call, "f": "read"}, {"process": 1, "type": done, "f": "read", "result": 1}
    )


def denied(**how: Any) -> str:
    """A write that returned, and whose event says in some way that its outcome is open; and a read of nothing."""
    return lines(
        event(0, "invoke", "write", 1), {"process": 0, "type": "return", "f": "write", **how},
        event(1, "invoke", "read"), {"process": 1, "type": "return", "f": "read", "result": None},
    )  # fmt: skip


def edn(around: str = "{%s}\n") -> str:
    """A write and a read, each event in `around`."""
    events = (0, "invoke", "write", 1), (0, "ok", "write", 1), (1, "invoke", "read", "nil"), (1, "ok", "read", 1)
    return "".join(around % f":process {p} :type :{t} :f :{f} :value {v}" for p, t, f, v in events)


WROTE = lines(*both("write", 1, 1), *both("read", None, 1, 1))
SECONDS = [1764410000.25, 1764410000.5, 1764410001.25, 1764410002.5]
FORMS: dict[str, tuple[str, str, str]] = {
    "a request and its response": (
        lines(
            {
                "client": "a",
                "request": {"op": "write", "key": "x", "value": 1},
                "response": {"ok": True},
                "start": 1,
                "end": 2,
            },
            {"client": "b", "request": {"op": "read", "key": "x"}, "response": {"value": 1}, "start": 3, "end": 4},
        ),
        '"response": {"value": 1}',
        '"response": {"value": 9}',
    ),
    "an input with the name of the operation": (
        lines(
            {
                "process": 1,
                "call_time": 1,
                "return_time": 2,
                "input": {"op": "put", "key": "k", "value": "a"},
                "output": {"status": "ok"},
            },
            {
                "process": 2,
                "call_time": 3,
                "return_time": 4,
                "input": {"op": "get", "key": "k"},
                "output": {"status": "ok", "value": "a"},
            },
        ),
        '"ok", "value": "a"',
        '"ok", "value": "b"',
    ),
    "a response that failed": (
        lines(
            {
                "client": 0,
                "request": {"op": "write", "value": 1},
                "response": {"error": "timeout"},
                "start": 1,
                "end": 2,
            },
            {"client": 1, "request": {"op": "read"}, "response": {"value": None}, "start": 3, "end": 4},
        ),
        '{"value": null}',
        '{"value": 7}',
    ),
    "lists of arguments": (
        lines(
            {"thread": "t1", "method": "put", "args": ["x", "a"], "start_us": 1, "end_us": 2, "result": None},
            {"thread": "t2", "method": "get", "args": ["x"], "start_us": 3, "end_us": 4, "result": "a"},
        ),
        '"result": "a"',
        '"result": "b"',
    ),
    "lists of arguments, of one object": (
        lines(record(0, "write", 1, 2, args=[1]), record(1, "read", 3, 4, args=[], result=1)),
        '"result": 1',
        '"result": 2',
    ),
    "a cas of three arguments": (
        lines(
            record(0, "write", 1, 2, args=["x", 1]),
            record(0, "cas", 3, 4, args=["x", 1, 2], result=True),
            record(1, "read", 5, 6, args=["x"], result=2),
        ),
        '"result": 2',
        '"result": 1',
    ),
    "events with lists of arguments": (
        lines(
            {"client": 0, "event": "call", "op": "put", "args": ["x", "a"]},
            {"client": 0, "event": "return", "op": "put"},
            {"client": 1, "event": "call", "op": "get", "args": ["x"]},
            {"client": 1, "event": "return", "op": "get", "result": "a"},
        ),
        '"result": "a"',
        '"result": "b"',
    ),
    "start and finish": (words("start", "finish"), '"result": 1', '"result": 2'),
    "begin and end": (words("begin", "end"), '"result": 1', '"result": 2'),
    "request and response": (words("request", "response"), '"result": 1', '"result": 2'),
    "a return that is not ok": (denied(ok=False), '"result": null', '"result": 2'),
    "a return with an exception": (denied(exception="TimeoutError"), '"result": null', '"result": 2'),
    "a return with a status": (denied(status="timeout"), '"result": null', '"result": 2'),
    "a return that failed": (denied(status="fail"), '"result": null', '"result": 1'),
    "a write that was answered with false": (
        lines(*both("write", 1, False), *both("read", None, None, 1)),
        '"read", "value": null}\n',
        '"read", "value": 7}\n',
    ),
    "a write of false": (
        lines(*both("write", False, False), *both("read", None, False, 1)),
        '"ok", "f": "read", "value": false',
        '"ok", "f": "read", "value": null',
    ),
    "the object in another field": (
        lines(
            *(
                event(p, t, f, v, register=r)
                for p, t, f, v, r in (
                    (0, "invoke", "write", 1, "x"),
                    (0, "ok", "write", 1, "x"),
                    (1, "invoke", "read", None, "y"),
                    (1, "ok", "read", None, "y"),
                )
            )
        ),
        '"ok", "f": "read", "value": null',
        '"ok", "f": "read", "value": 1',
    ),
    "a record of a lock by its name": (
        lines(record("A", "lock", 1, 2, lock="L"), record("B", "lock", 3, 4, lock="M")),
        '"M"',
        '"L"',
    ),
    "seconds with a fraction": (
        lines(
            *(
                one | {"time": at}
                for one, at in zip([*both("write", 1, 1), *both("read", None, 1, 1)], SECONDS, strict=True)
            )
        ),
        '"ok", "f": "read", "value": 1',
        '"ok", "f": "read", "value": 2',
    ),
    "numbers as texts": (
        lines(
            record(0, "write", "1700000000000000001", "1700000000000000002", argument=1),
            record(1, "read", "1700000000000000003", "1700000000000000004", value=1),
        ),
        '"value": 1}\n',
        '"value": 2}\n',
    ),
    "times as Go prints them": (
        lines(
            *(
                record(c, f, f"2026-11-29 10:00:0{s} +0000 UTC m=+0.{s}", f"2026-11-29 10:00:0{s}.5 +0000 UTC", **v)
                for c, f, s, v in ((0, "write", 1, {"argument": 1}), (1, "read", 3, {"value": 1}))
            )
        ),
        '"value": 1',
        '"value": 2',
    ),
    "an end that never was": (
        '{"client":0,"op":"write","value":1,"start":5,"end":Infinity}\n'
        '{"client":1,"op":"read","value":null,"start":6,"end":7}\n{"client":1,"op":"read","value":1,"start":8,"end":9}\n',
        '"value":1,"start":8',
        '"value":2,"start":8',
    ),
    "titles": (
        "Client,Operation,Key,Value,Start Time,End Time\nc1,Write,x,1,1,2\nc2,Read,x,1,3,4\n",
        "Read,x,1",
        "Read,x,2",
    ),
    "titles of events": (
        "Process,Type,F,Value\n0,invoke,write,1\n0,ok,write,1\n1,invoke,read,\n1,ok,read,1\n",
        "ok,read,1",
        "ok,read,2",
    ),
    "events of a client": (
        "client,event,op,value\n0,invoke,write,1\n0,ok,write,1\n1,invoke,read,\n1,ok,read,1\n",
        "ok,read,1",
        "ok,read,2",
    ),
    "comments in front of a table": (
        "# run 17\n# seed 4\n\nclient,op,value,start,end\n0,write,1,1,2\n1,read,1,3,4\n",
        "read,1",
        "read,2",
    ),
    "comments in front of events": (
        "# run 17\n" + WROTE,
        '"ok", "f": "read", "value": 1',
        '"ok", "f": "read", "value": 2',
    ),
    "a table of Python": (
        "client,op,value,start,end,success\n0,read,None,1,2,True\n0,write,1,3,4,True\n0,write,5,5,6,False\n1,read,1,7,8,TRUE\n",
        "1,read,1",
        "1,read,None",
    ),
    "a test of Jepsen": ('{:name "x" :history [' + edn() + "]}", ":f :read :value 1", ":f :read :value 2"),
    "times as literals of EDN": (
        edn('{:time #inst "2026-11-29T10:00:00Z" %s}\n'),
        ":f :read :value 1",
        ":f :read :value 2",
    ),
    "a map with a namespace": (edn("#:op{%s}\n"), ":f :read :value 1", ":f :read :value 2"),
    "a log of bunyan": (
        lines(
            *(
                {"name": "app", "level": 30, "time": f"2026-11-29T10:00:0{at}.000Z", **one}
                for at, one in enumerate([*both("write", 1, 1), *both("read", None, 1, 1)])
            )
        ),
        '"ok", "f": "read", "value": 1',
        '"ok", "f": "read", "value": 2',
    ),
    "a log with other names of events": (
        "".join(
            f"10:00:0{at} INFO {line}\n"
            for at, line in enumerate(words("invoke", "ok").replace('"f"', '"op"').splitlines())
        ),
        '"result": 1',
        '"result": 2',
    ),
    "the index of pandas": (",client,op,value,start,end\n0,0,write,1,1,2\n1,1,read,1,3,4\n", "read,1", "read,2"),
    "a delimiter behind the last cell": (
        "client,op,value,start,end,\n0,write,1,1,2,\n1,read,1,3,4,\n",
        "read,1",
        "read,2",
    ),
    "records of broadcasts": (
        lines(record(0, "broadcast", 1, 2, value=1), record(1, "read", 3, 4, value=[1], final=True)),
        "[1]",
        "[]",
    ),
    "Windows": (
        "\ufeff" + WROTE.replace("\n", "\r\n"),
        '"ok", "f": "read", "value": 1',
        '"ok", "f": "read", "value": 2',
    ),
}


@pytest.mark.parametrize("what", FORMS)
def test_the_verdict_is_right_without_an_option(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, old, new = FORMS[what]
    wrong = text.replace(old, new)
    assert wrong != text
    for code, found in enumerate((text, wrong)):
        (tmp_path / "h.txt").write_text(found, newline="")
        assert harness(capsys, "check", tmp_path / "h.txt")[0] == code


def packed_tar(text: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = tarfile.TarInfo("h.jsonl")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


def packed_zip(text: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("h.jsonl", text)
    return packed.getvalue()


PYTHON = "values as Python prints them; json.dumps of each event writes JSON"
REFUSED: dict[str, tuple[str | bytes, str]] = {
    "zstd": (b"\x28\xb5\x2f\xfd\x04", "packed with zstd; unpack it: of packed files only gzip is read"),
    "bzip2": (bz2.compress(WROTE.encode()), "packed with bzip2; unpack it"),
    "xz": (lzma.compress(WROTE.encode()), "packed with xz; unpack it"),
    "an archive": (packed_tar(WROTE), "an archive (tar); unpack it"),
    "a packed archive": (gzip.compress(packed_tar(WROTE + WROTE)), "an archive (tar); unpack it"),
    "a zip that is not compressed": (packed_zip(WROTE), "an archive (zip); unpack it"),
    "a repr of Python": ("{'process': 0, 'type': 'invoke', 'f': 'write', 'value': 1}\n", PYTHON),
    "a list of tuples": ("[(0, 'invoke', 'write', 1)]\n", PYTHON),
    "YAML": ("- process: 0\n  type: invoke\n", "YAML; JSON is right, one event a line"),
    "XML": ("<history><op process='0'/></history>\n", "XML or HTML; JSON is right, one event a line"),
    "a span": (
        lines({"traceId": "t", "name": "write", "startTimeUnixNano": "1"}),
        "a span of OpenTelemetry does not say which",
    ),
    "a status of HTTP": (
        lines(record(0, "write", 1, 2, value=1, http_status=504)),
        "the field 'http_status' is not known",
    ),
    "a code": (lines(record(0, "write", 1, 2, value=1, errorCode=7)), "the field 'error_code' is not known"),
    "a result that is an error": (
        lines(record(0, "write", 1, 2, value=1, result={"error": "timeout"})),
        "the result has an error",
    ),
    "a return whose result is an error": (denied(result={"error": "timeout"}), "the result has an error"),
    "a return that may be false": (denied(success="no"), 'the outcome is "no", not ok, fail or info'),
    "a cas with a number": (lines(*both("cas", [5, 6], 0)), "a cas is answered with true or false, not 0"),
    "a cas with a text": (lines(*both("cas", [5, 6], "FAILED")), 'a cas is answered with true or false, not "FAILED"'),
    "a lock with a text": (
        lines(record("B", "lock", 3, 4, key="L", result="timeout")),
        "the result of a lock is a fence, true or",
    ),
    "two keys": (
        lines(event(0, "invoke", "send", 1, topic="t", queue=0)),
        "the fields 'queue' and 'topic' may both name",
    ),
    "a whole operation": (
        lines({"client": 0, "op": "write", "sent_at": 1, "received_at": 2}),
        "has a 'start' and an 'end'",
    ),
    "some times with a fraction": (
        lines(event(0, "invoke", "write", 1, time=1.5), event(0, "ok", "write", 1, time=2)),
        "some times are seconds with a",
    ),
    "reads of lists alone": (
        "{:process 0 :type :invoke :f :txn :value [[:r :x nil]]}\n"
        "{:process 0 :type :ok :f :txn :value [[:r :x [1]]]}\n",
        "is Elle's list-append; no model here has it, elle-cli checks it",
    ),
    "an end in front of the start": (
        lines(record(0, "write", 5, -1, value=1)),
        "one that never returned has no end, or null",
    ),
    "a process that began again": (
        lines(*(event(0, "invoke", "write", v) for v in (1, 2))),
        "its write is still open (an info ends",
    ),
    "a write without its value": (lines(*both("write", None, 1)), "a write of 1 needs that value in its invoke, too"),
    "a table without rows": ("client,op,value,start,end\n", "nothing checked: no client did anything in this history"),
    "faults alone": (lines(*[event("nemesis", "info", "kill")] * 2), "nothing checked: no client did anything in this"),
    "nothing that is known": ("c1 invoke write 1\n", "harness check --template NAME prints an example"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_read_is_one_line(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, said = REFUSED[what]
    (tmp_path / "h.txt").write_bytes(found if isinstance(found, bytes) else found.encode())
    code, text = harness(capsys, "check", tmp_path / "h.txt")
    assert (code, len(text)) == (2, 1), text
    assert said in text[0]


@pytest.mark.parametrize("harmless", [{"errorCode": 0}, {"exception": None}, {"node_status": ""}, {"retries": 3}])
def test_a_field_that_denies_nothing_is_a_note(
    harmless: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "h.txt").write_text(lines(record(0, "write", 1, 2, value=1, **harmless)))
    assert harness(capsys, "check", tmp_path / "h.txt")[0] == 0


def test_what_a_reader_leaves_out_or_assumes_has_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for what, note in (
        ("the object in another field", "the field `register` is the key of the events"),
        ("a record of a lock by its name", "2 records have their key in the field 'lock'"),
        ("lists of arguments", "2 records have a list of arguments (`args`): of two, the first is the key"),
        (
            "events with lists of arguments",
            "the field `args` is the list of arguments (of two, the first is the key) of the",
        ),
        ("a log of bunyan", "fields of events that are not read: level, name"),
        ("a return that is not ok", "1 records are not ok, which does not say that nothing happened"),
        ("a write that was answered with false", "1 operations were answered with false: their outcome is unknown"),
    ):
        (tmp_path / "h.txt").write_text(FORMS[what][0])
        _, text = harness(capsys, "check", tmp_path / "h.txt")
        assert any(line.startswith(f"  note: {note}") for line in text), (what, text)
