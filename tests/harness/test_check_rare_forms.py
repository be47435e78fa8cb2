# SPDX-License-Identifier: Apache-2.0
"""`harness check` on histories with rare encodings, ends of lines, dates and names: good ones, and others with a
violation. What a reader assumes has a note, and what it refuses is one line.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.commands import quiet_harness as harness


def lines(*found: dict[str, Any]) -> str:
    return "".join(json.dumps(one) + "\n" for one in found)


def both(process: Any, f: str, argument: Any, result: Any, **more: Any) -> list[dict[str, Any]]:
    outcomes = ("invoke", argument), ("ok", result)
    return [{"process": process, "type": type_, "f": f, "value": value, **more} for type_, value in outcomes]


def records(*ends: Any, start: str = "start", end: str = "end", **more: Any) -> str:
    """A write and a read of one, with these four times."""
    first, second, third, fourth = ends
    return lines(
        {"client": 0, "op": "write", "value": 1, start: first, end: second, **more},
        {"client": 1, "op": "read", "value": 1, start: third, end: fourth, **more},
    )


EVENTS: Final = lines(*both(0, "write", 1, 1), *both(1, "read", None, 1))
RECORDS: Final = records(1, 2, 3, 4)
EDN: Final = "".join(
    f":process {p} :type :{t} :f :{f} :value {v}\n"
    for p, t, f, v in (
        (0, "invoke", "write", 1), (0, "ok", "write", 1), (1, "invoke", "read", "nil"), (1, "ok", "read", 1),
    )
)  # fmt: skip
MAPS: Final = "".join(f"{{{line}}}\n" for line in EDN.splitlines())
TABLE: Final = "client,op,value,start,end\n0,write,1,1,2\n1,read,1,3,4\n"
ANOTHER: Final = {
    EVENTS: ('"read", "value": 1', '"read", "value": 2'),
    RECORDS: ('"read", "value": 1', '"read", "value": 2'),
    MAPS: (":read :value 1", ":read :value 2"),
    TABLE: ("read,1", "read,2"),
}
"""A history -> what is to be replaced for a violation."""

WRITTEN: dict[str, Callable[[str], bytes]] = {
    "lines that end in a carriage return": lambda text: text.replace("\n", "\r").encode(),
    "a JSON text sequence": lambda text: "".join(f"\x1e{line}\n" for line in text.splitlines()).encode(),
    "UTF-32": lambda text: text.encode("utf-32"),
}


@pytest.mark.parametrize("text", ANOTHER, ids=["events", "records", "EDN", "a table"])
@pytest.mark.parametrize("how", WRITTEN)
def test_a_text_in_another_form(how: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for code, found in enumerate((text, text.replace(*ANOTHER[text]))):
        (tmp_path / "h.txt").write_bytes(WRITTEN[how](found))
        assert harness(capsys, "check", tmp_path / "h.txt")[0] == code


def dates(form: str) -> str:
    return records(*(form.format(at) for at in range(4)))


READ: Final = ('"read", "value": 1', '"read", "value": 2')
NAMED: Final = (*both(0, "write", 1, 1), *both(0, "cas", {"old": 1, "new": 2}, {"old": 1, "new": 2}))
FORMS: dict[str, tuple[str, str, str]] = {
    "names of EDN that are texts": (
        MAPS.replace(":process", '"process"').replace(":type", '"type"').replace(":f ", '"f" ').replace(":v", '"v')
        .replace('"value', '"value"'),
        ':read "value" 1}', ':read "value" 2}',
    ),
    "a vector of such maps": ("[" + MAPS.replace(":process", '"process"') + "]", ":read :value 1", ":read :value 2"),
    "other names in EDN": (
        MAPS.replace(":process", ":client").replace(":f ", ":op "), ":op :read :value 1", ":op :read :value 2",
    ),
    "whole operations in EDN": (
        "{:client 0 :op :write :value 1 :start 1 :end 2}\n{:client 1 :op :read :value 1 :start 3 :end 4}\n",
        ":read :value 1", ":read :value 2",
    ),
    "compact dates": (dates("20261129T10532{}.5Z"), *READ),
    "compact dates with a zone": (dates("20261129T10532{}+0100"), *READ),
    "seconds and nanoseconds": (records(*({"secs": 9, "nanos": at} for at in range(4))), *READ),
    "times of Protocol Buffers": (records(*({"seconds": "9", "nanos": at} for at in range(4))), *READ),
    "times of Rust's clock": (
        lines(*(
            {**one, "time": {"secs_since_epoch": 9, "nanos_since_epoch": at}}
            for at, one in enumerate([*both(0, "write", 1, 1), *both(1, "read", None, 1)])
        )), *READ,
    ),
    "the time of a response": (records(1, 2, 3, 4, start="request_ts", end="response_ts"), *READ),
    "times with a letter in front": (records(1, 2, 3, 4, start="t_invoke", end="t_return"), *READ),
    "times with the word in front": (records(1, 2, 3, 4, start="ts_begin", end="ts_end"), *READ),
    "a return with its unit": (records(1, 2, 3, 4, start="call_ns", end="ret_ns"), *READ),
    "nanoseconds by their C name": (records(1, 2, 3, 4, start="start_nsec", end="end_nsec"), *READ),
    "units in brackets": (TABLE.replace("start,end", "start (ms),end (ms)"), "read,1", "read,2"),
    "bars between cells": (TABLE.replace(",", "|"), "read|1", "read|2"),
    "a read that never returned": (
        RECORDS + lines({"client": 2, "op": "read", "start": 5, "end": None}, {"client": 3, "op": "read", "start": 6}),
        *READ,
    ),
    "UTC by its name": (
        records(*(f"2026-11-29 {time}" for time in ("10:00:01 UTC", "10:00:02 GMT", "10:00:03Z", "12:00:04 +02:00"))),
        *READ,
    ),
    "a character in a log at which Python divides lines": (
        "begin\n" + EVENTS.replace('"value": 1', '"value": "a\u2028b"'), '"read", "value": "a', '"read", "value": "c',
    ),
    "such a character in a history.txt": (
        '0\t:invoke\t:write\t"a\u2028b"\n0\t:ok\t:write\t"a\u2028b"\n'
        '1\t:invoke\t:read\tnil\n1\t:ok\t:read\t"a\u2028b"\n',
        ':read\t"a', ':read\t"c',
    ),
    "a topic and its partition": (
        lines(*(
            {"client": 0, "op": "write", "topic": "t", "partition": p, "value": p, "start": p, "end": p + 1}
            for p in (1, 2)
        ), {"client": 0, "op": "read", "topic": "t", "partition": 1, "value": 1, "start": 5, "end": 6}),
        '"partition": 1, "value": 1, "start": 5', '"partition": 2, "value": 1, "start": 5',
    ),
    "a cell of nil": (
        "client,op,value,start,end\n1,read,nil,1,2\n0,write,1,3,4\n1,read,1,5,6\n", "6\n", "6\n0,read,NULL,7,8\n",
    ),
    "an error that is none, as Go prints it": (records(1, 2, 3, 4, err="<nil>"), *READ),
    "an operation that is called its kind": (
        records(1, 2, 3, 4, start="invoke_ns", end="complete_ns", outcome="ok").replace('"op"', '"kind"'),
        '"read", "value": 1', '"read", "value": 2',
    ),
    "operations beside other fields, without clients": (
        json.dumps({"schema": 1, "operations": [
            {"id": "w", "kind": "put", "key": "k", "value": "a", "invoke_ns": 1, "complete_ns": 2},
            {"id": "r", "kind": "get", "key": "k", "value": "a", "invoke_ns": 3, "complete_ns": 4},
        ]}),
        '"get", "key": "k", "value": "a"', '"get", "key": "k", "value": "b"',
    ),
    "an object called k": (
        lines(*({**one, "k": one["process"]} for one in [*both(0, "write", 1, 1), *both(1, "read", None, None)])),
        '"read", "value": null, "k": 1', '"read", "value": 7, "k": 1',
    ),
    "names in capitals": (EVENTS.replace('"read"', '"READ"').replace('"write"', '"Write"'),
                          '"READ", "value": 1', '"READ", "value": 2'),
    "a comma behind each line": (EVENTS.replace("}\n", "},\n"), *READ),
    "several events on a line": (EVENTS.replace("}\n", "}"), *READ),
    "the separator of Excel": ("sep=;\n" + TABLE.replace(",", ";"), "read;1", "read;2"),
    "names with a namespace": (
        MAPS.replace(":", ":jepsen.op/").replace(":jepsen.op/f :jepsen.op/", ":jepsen.op/f :")
        .replace(":jepsen.op/type :jepsen.op/", ":jepsen.op/type :"),
        ":read :jepsen.op/value 1", ":read :jepsen.op/value 2",
    ),
    "the address of an object": (
        MAPS.replace(":value", ':conn #object[java.net.Socket 0x1a2b "Socket[]"] :value'),
        ':read :conn #object[java.net.Socket 0x1a2b "Socket[]"] :value 1',
        ':read :conn #object[java.net.Socket 0x1a2b "Socket[]"] :value 2',
    ),
    "a key inside of each value": (
        lines(*both(0, "write", *[{"key": 0, "value": 1}] * 2), *both(0, "write", *[{"key": 1, "value": 5}] * 2),
              *both(1, "read", {"key": 0, "value": None}, {"key": 0, "value": 1})),
        '"ok", "f": "read", "value": {"key": 0, "value": 1}', '"ok", "f": "read", "value": {"key": 0, "value": 5}',
    ),
    "blanks where Jepsen writes tabs": (
        "INFO  jepsen.util - 0 :invoke :write 1\nINFO  jepsen.util - 0 :info :write 1 :timeout\n"
        "INFO  jepsen.util - 4 :invoke :read nil\nINFO  jepsen.util - 4 :ok :read 1\n",
        ":ok :read 1", ":ok :read 2",
    ),
    "an error that says OK, as in the labs of MIT": (
        lines(
            {"ClientId": 0, "Input": {"Op": 1, "Key": "x", "Value": "1"}, "Call": 1, "Output": {"Err": "OK"},
             "Return": 2},
            {"ClientId": 1, "Input": {"Op": 0, "Key": "x"}, "Call": 3, "Output": {"Value": "1", "Err": "OK"},
             "Return": 4},
        ),
        '{"Value": "1", "Err": "OK"}', '{"Value": "2", "Err": "OK"}',
    ),
    "whole numbers as fractions": (
        "process,type,f,key,value\n0.0,invoke,write,1,1.0\n0.0,ok,write,1,1.0\n1.0,invoke,read,1.0,\n1.0,ok,read,1.0,1.0\n",
        "read,1.0,1.0", "read,1.0,null",
    ),
    "whole numbers as fractions, in records": (
        TABLE.replace("0,write", "0.0,write").replace("1,read", "1.0,read"), "read,1", "read,2",
    ),
    "keys that are objects": (
        lines(*both(0, "write", 1, 1, key={"a": 1, "b": 2}), *both(1, "read", None, 1, key={"b": 2, "a": 1})),
        '"read", "value": 1', '"read", "value": null',
    ),
    "a cas whose values are fields": (
        lines(
            *both(0, "write", 1, 1, error="nil"), {"process": 0, "type": "invoke", "f": "cas", "expected": 1, "new": 2},
            {"process": 0, "type": "ok", "f": "cas", "value": True}, *both(1, "read", None, 2),
        ),
        '"read", "value": 2', '"read", "value": 1',
    ),
    "a cas in Java's words": (
        lines(*both(0, "write", 1, 1), *both(0, "compareAndSet", [1, 2], None), *both(1, "read", None, 2)),
        '"read", "value": 2', '"read", "value": 1',
    ),
    "a cas whose values have names": (
        lines(*NAMED, *both(1, "read", None, 2)), '"read", "value": 2', '"read", "value": 1',
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", FORMS)
def test_the_verdict_is_right_without_an_option(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, old, new = FORMS[what]
    wrong = text.replace(old, new)
    assert wrong != text
    for code, found in enumerate((text, wrong)):
        (tmp_path / "h.txt").write_text(found)
        assert harness(capsys, "check", tmp_path / "h.txt")[0] == code


DENIED: Final = records(1, 2, 3, 4).replace('"read", "value": 1', '"read", "value": null')
RETURNED: Final = EVENTS.replace('"ok", "f": "write"', '"return", "f": "write"')


def beside(field: str, text: str = DENIED) -> bytes:
    """The text with a field in its write (records), or in the completion of that (events)."""
    at = text.index("}\n", text.index("\n") if text is not DENIED else 0)
    return f"{text[:at]}, {field}{text[at:]}".encode()


REFUSED: dict[str, tuple[bytes, str]] = {
    "a name that is there twice": (
        EVENTS.replace('"read", "value": 1', '"read", "value": 2, "value": 1').encode(),
        "h.txt:4: an object has the field 'value' twice; once is right",
    ),
    "twice, in an array": (
        b'[{"process": 0, "process": 1, "type": "invoke", "f": "read"}]', "has the field 'process' twice",
    ),
    "twice, in a record": (beside('"client": 7'), "h.txt:1: an object has the field 'client' twice"),
    "twice, in an object over several lines": (
        b'{\n"client": 0, "op": "read", "start": 1, "end": 2,\n"value": 1, "value": 2}', "has the field 'value' twice",
    ),
    "an operation that was not acknowledged": (beside('"acked": false'), "the field 'acked' is not known (false); the"),
    "a cas that was not applied": (beside('"swapped": false', EVENTS), "the field 'swapped' is not known (false)"),
    "ok, and yet not": (beside('"ok": false', EVENTS), "the field 'ok' is not known (false)"),
    "ok, and yet an error": (beside('"error": "deadline"', EVENTS), "h.txt:2: its type is ok, and yet it has an error"),
    "ok, and yet a time-out": (beside('"status": "timeout"', EVENTS), "the field 'status' is not known"),
    "ok, and yet an error code": (beside('"error_code": "X"', EVENTS), "the field 'error_code' is not known"),
    "an aborted operation": (beside('"aborted": true'), "the field 'aborted' is not known (true)"),
    "a code of a return": (beside('"code": 503', RETURNED), "the field 'code' is not known (503)"),
    "nothing found, and yet a value": (
        beside('"found": false', RECORDS.replace("write", "x", 1)).replace(b'"x"', b'"write"'),
        "the field 'found' is false; null as its value says that nothing was there",
    ),
    "a result that says time-out": (beside('"result": "timeout"'), 'the result of a write is "timeout"; an outcome ('),
    "a negative result": (beside('"result": -1'), "the result of a write is -1; an outcome (type, outcome, status) is"),
    "a result that is an error of Rust": (beside('"ret": {"Err": "Timeout"}'), "the result has an error; an error"),
    "an operation that is an object": (
        lines({"thread": 0, "event": "invoke", "op": {"Write": 1}}).encode(),
        'h.txt:1: f is {"Write": 1}, not the name of an operation',
    ),
    "an operation that is a map": (
        b"{:process 0 :type :invoke :f {:write 1}}", 'h.txt:1: f is {"write" 1}, not the name of an operation',
    ),
    "a result that is not ok": (beside('"result": {"ok": false}'), "the result has an error; an error beside it"),
    "an output of an event that says time-out": (
        EVENTS.replace('"ok", "f": "write", "value": 1', '"return", "f": "write", "output": "timed out"').encode(),
        'h.txt:2: the result of a write is "timed out"; an outcome (',
    ),
    "a write without its value, in EDN": (
        MAPS.replace(":write :value", ":write :v").encode(), "h.txt:1: a write needs its :value",
    ),
    "a write without its value": (
        EVENTS.replace('"write", "value"', '"write", "v"').encode(),
        "h.txt:1: a write needs its value; this event has 'process', 'type', 'f', 'v'",
    ),
    "a line of docker's log": (
        lines(*({"log": line, "stream": "stdout"} for line in EVENTS.splitlines())).encode(),
        "the event is a text in the field 'log'; take it out, such as with: jq -r .log FILE",
    ),
    "the data of Porcupine's picture": (
        json.dumps([{"History": [], "PartialLinearizations": [], "Largest": {}}]).encode(),
        "this is the data of Porcupine's picture: its descriptions are free texts",
    ),
    "Jepsen's own file": (b"JEPSEN\0\0\0\1", "Jepsen's own binary file; the history.edn beside it is right"),
    "a table of a database": (b" op | start\n----+------\n r  | 1\n", "a table as a database prints it; JSON is right"),
    "the newest event first": (
        lines(*reversed([{**json.loads(line), "time": at} for at, line in enumerate(EVENTS.splitlines())])).encode(),
        "that it never invoked; the times run backwards, and --order time sorts the events",
    ),
    "two objects by another name": (
        lines(*both(0, "write", 1, 1, path="/a"), *both(1, "read", None, None, path="/b")).encode(),
        "h.txt:3: there is no key, and the field 'path' is not always the same; if it names the object, `key` is its",
    ),
    "two objects by another name, in records": (
        RECORDS.replace('"start": 1', '"row": 1, "start": 1').replace('"start": 3', '"row": 2, "start": 3').encode(),
        "h.txt:2: there is no key, and the field 'row' is not always the same",
    ),
    "a queue of Java": (
        lines(*both(0, "offer", 1, True), *both(1, "poll", None, 1)).encode(), "no model has `offer`; is it an `en",
    ),
    "a sum of two models": (
        lines(*both(0, "increment", None, 1), *both(1, "get", None, 1)).encode(), "no model has all of get, incr",
    ),
    "an empty queue in words": (
        lines(*both(0, "enqueue", "a", None), *both(1, "pop", None, "a"), *both(1, "pop", None, "EMPTY"))
        .replace("enqueue", "push").encode(),
        'op 5: nobody added "EMPTY"; if it says that it was empty, null is right',
    ),
    "a broker's own words": (
        lines(*both(0, "publish", 1, None), *both(1, "consume", None, 1)).encode(),
        "no model has `publish`; is it a `send`, an op of messages? docs/histories.md has their names and values",
    ),
    **{
        f"printed as {name}": (text.encode(), f"{name}; JSON is right, one event a line, such as")
        for name, text in {
            "a map of Erlang": "#{process => 0,type => invoke}.\n",
            "terms of Erlang": "[{process,0},{type,invoke}].\n{invoke,0}.\n",
            "a map of Elixir": "%{process: 0, type: :invoke}\n",
            "a hash of Ruby": "{:process=>0, :type=>:invoke}\n",
            "an object whose names have no quotes": "{ process: 0, type: 'invoke' }\n",
            "values as a program prints them": "Op { process: 0, kind: Invoke }\n",
            "YAML": "history:\n- process: 0\n",
            "TOML": "[[op]]\nprocess = 0\n",
            "XML or HTML": "<!DOCTYPE html>\n",
        }.items()
    },
    "UTF-16 without its mark": (EVENTS.encode("utf-16-le"), "it begins with NUL bytes: no text, or UTF-16 or UTF-32"),
    "a part of UTF-32": (b"\xff\xfe\0\0{", "it begins as a text in UTF-32, and is none"),
    "half a time": (records({"secs": 1}, 2, 3, 4).encode(), "neither a number nor a date; seconds and nanos are right"),
    "nanoseconds of more than a second": (
        records({"secs": 1, "nanos": 10**9}, 2, 3, 4).encode(), "seconds and nanos are right",
    ),
    "a day that no month has": (dates("20260231T10532{}Z").encode(), "not a date such as 2026-11-29T10:53:25.123Z"),
    "a response time, which may be how long it took": (
        records(1, 2, 3, 4, start="request_time", end="response_time").encode(), "has a 'start' and an 'end'",
    ),
    "a zone by a name that is no offset": (
        records(*(f"2026-11-29 10:00:0{at} CET" for at in range(4))).encode(), "not a date such as 2026-11-29T10:53:25",
    ),
    "reads of objects": (
        EVENTS.replace('"read", "value": 1', '"read", "value": {"value": 1, "version": 7}').encode(),
        "each read shows an object, and no write has one; the value alone is right",
    ),
    "reads of lists": (
        EVENTS.replace('"read", "value": 1', '"read", "value": [1]').encode(),
        "each read shows a list, and no write has one; the value alone is right",
    ),
    "steps of transactions in reads and writes": (
        lines(*both(0, "write", [["w", 1, 1]], None), *both(1, "read", [["r", 1, None]], [["r", 1, 1]])).encode(),
        "values of reads and writes are steps of transactions; an operation `txn` is right",
    ),
    "a cas with one name": (lines(*both(0, "cas", {"old": 1}, None)).encode(), "a cas needs [from to]"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_read_is_one_line(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, said = REFUSED[what]
    (tmp_path / "h.txt").write_bytes(found)
    code, text = harness(capsys, "check", tmp_path / "h.txt")
    assert (code, len(text)) == (2, 1), text
    assert said in text[0]


def silent(f: str) -> str:
    """An operation that ended in ok, and whose completion has no value; then a write."""
    return lines({"process": 1, "type": "invoke", "f": f}, {"process": 1, "type": "ok", "f": f})


NOTES: dict[str, tuple[str, list[str], int, str]] = {
    "a read without its value": (
        silent("read") + EVENTS, [], 0, "1 operations ended in ok without a value, which counts as null",
    ),
    "a read without its value behind a write": (
        EVENTS + silent("read"), [], 1, "1 operations ended in ok without a value, which counts as null",
    ),
    "a dequeue without its value": (
        silent("dequeue") + lines(*both(0, "enqueue", 1, 1)), ["--model", "fifo-queue"], 0, "1 operations ended in ok",
    ),
    "errors": (
        records(1, 2, 3, 4, error="timeout"), [], 2,
        "2 records have an error, which does not say that nothing happened",
    ),
    "no end": (
        lines({"client": 0, "op": "write", "value": 1, "start": 1}, {"client": 1, "op": "read", "start": 3}),
        [], 2, "2 records have no time of their return (such as `end`): their outcome is unknown",
    ),
    "no client": (
        RECORDS.replace('"client": 0, ', ""), [], 0, "1 records name no client (such as `client`): each is a client of",
    ),
    "fields beside the operations": (
        json.dumps({"ops": [json.loads(line) for line in RECORDS.splitlines()], "initial": {"x": 1}}), [], 0,
        "the events are those in the field 'ops'; not read beside it: 'initial'",
    ),
    "a time-out that is called a failure": (
        lines(*both(0, "write", 1, 1), *both(1, "read", None, 1)).replace('"ok", "f": "write", "value": 1',
        '"fail", "f": "write", "value": 1, "error": "request timed out"'), [], 1,
        "1 operations ended in fail after a time-out or a broken connection; that does not prove",
    ),
    "ok, and yet an error, in EDN": (
        MAPS.replace(":type :ok :f :read", ":type :ok :error :late :f :read"), [], 0,
        "1 operations are ok although they have an error",
    ),
    "values of two parts": (
        lines(*both(0, "write", [0, 1], None), *both(0, "write", [1, 5], None), *both(1, "read", None, [0, 1])), [], 1,
        "each value has two parts; if the first of them is the key, --independent says so",
    ),
    "a read that says time-out": (
        records(1, 2, 3, 4).replace('"read", "value": 1', '"read", "value": "ERR timeout"'), [], 1,
        'nobody wrote "ERR timeout"; if it says that the read did not succeed, its type is fail or info',
    ),
    "a text for nothing": (
        records(1, 2, 3, 4).replace('"read", "value": 1', '"read", "value": "(nil)"'), [], 1,
        'nobody wrote "(nil)"; if it says that nothing was there, null is right',
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", NOTES)
def test_what_is_assumed_has_a_note(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, options, code, note = NOTES[what]
    (tmp_path / "h.txt").write_text(text)
    found, printed = harness(capsys, "check", tmp_path / "h.txt", *options)
    assert found == code, printed
    assert any(line.startswith(f"  note: {note}") for line in printed), printed


def test_a_read_without_its_value_is_left_out_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "h.txt").write_text(EVENTS + silent("read"))
    code, printed = harness(capsys, "check", tmp_path / "h.txt", "--nil-reads", "unrecorded")
    assert (code, "  note: 1 reads recorded no value and are left out of account" in printed) == (0, True)


@pytest.mark.parametrize("form", ["jsonl", "edn"])
def test_an_index_that_contradicts_the_file_is_a_question(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One client behind the other: by the lines a stale read, by the indices none. Numbers that two events share are
    no such index.
    """
    events = [*both(0, "write", 1, 1), *both(0, "write", 2, 2), *both(1, "read", None, 1)]

    def checked(indices: list[int], *options: str) -> tuple[int, list[str]]:
        found = [{**event, "index": index} for event, index in zip(events, indices, strict=True)]
        edn = ["{" + " ".join(f":{n} {json.dumps(v)}" for n, v in one.items() if v is not None) + "}" for one in found]
        (tmp_path / "h.txt").write_text(lines(*found) if form == "jsonl" else "\n".join(edn))
        return harness(capsys, "check", tmp_path / "h.txt", *options)

    code, printed = checked([0, 1, 4, 5, 2, 3])
    assert (code, len(printed)) == (2, 1)
    assert (
        "h.txt:5: its index is below that of an event above; --order index sorts the events, and --order" in printed[0]
    )
    assert checked([0, 1, 4, 5, 2, 3], "--order", "index")[0] == 0
    assert checked([0, 1, 4, 5, 2, 3], "--order", "file")[0] == 1
    assert checked([0, 10, 20, 30, 40, 50])[0] == 1
    assert checked([0, 1, 2, 3, 0, 1])[0] == 1
    code, printed = checked([0, 1, 2, 3, 0, 1], "--order", "index")
    assert (code, "--order index needs another index for each event" in printed[0]) == (2, True)


@pytest.mark.parametrize(("seen", "code"), [({"n": 2}, 0), ({"n": 3}, 1)])
def test_a_register_of_objects_is_judged(
    seen: Any, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also if only a cas has left one."""
    changed = [*both(0, "write", 1, 1), *both(0, "cas", [1, {"n": 2}], [1, {"n": 2}]), *both(1, "read", None, seen)]
    (tmp_path / "h.txt").write_text(lines(*changed))
    assert harness(capsys, "check", tmp_path / "h.txt")[0] == code
