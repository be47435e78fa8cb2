# SPDX-License-Identifier: Apache-2.0
"""`harness check` on files of other tools: for each kind a good history, one with a violation, and a broken file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.commands import harness_lines as harness


def lines(*values: Any) -> str:
    return "".join(value if isinstance(value, str) else json.dumps(value) + "\n" for value in values)


def record(client: Any, op: str, start: float, end: float | None, **more: Any) -> dict[str, Any]:
    return {"client": client, "op": op, "start": start, "end": end, **more}


WRITE = record(0, "write", 10, 20, value=1)
DAY = "2026-11-29"

RECORDS: dict[str, tuple[list[dict[str, Any]], int]] = {
    "a read while the write is open": ([WRITE, record(1, "read", 12, 15, value=None)], 0),
    "a stale read": ([WRITE, record(1, "read", 21, 25, output=None)], 1),
    "they touch, so they overlap": ([WRITE, record(1, "read", 20, 25, output=None)], 0),
    "in whatever order they stand": ([record(1, "read", 12, 25, output=1), WRITE], 0),
    "seconds": ([record(0, "write", 1, 1.5, value=1), record(1, "read", 1.6, 2, value=None)], 1),
    "a write that never ended": ([record(0, "write", 10, None, value=1), record(0, "read", 30, 40, value=1)], 0),
    "one with an error": ([{**WRITE, "error": "timed out"}, record(1, "read", 30, 40, value=1)], 0),
    "one that failed": ([{**WRITE, "type": "fail"}, record(1, "read", 30, 40, value=1)], 1),
    "one that is not ok": ([{**WRITE, "ok": False}, record(1, "read", 30, 40, value=1)], 0),
    "a cas that was refused": ([WRITE, record(0, "cas", 30, 40, input=[1, 2], output=False),
                                record(1, "read", 50, 60, value=1)], 0),
    "a cas that was not": ([WRITE, record(0, "cas", 30, 40, input=[1, 2], output=True),
                            record(1, "read", 50, 60, value=1)], 1),
    "other names": ([{"process": "a", "f": "PUT", "key": "k", "input": "x", "call": 1, "return": 2},
                     {"thread": "b", "operation": "Get", "key": "k", "result": "", "begin": 3, "end": 4}], 1),
    "two at a time of one client": ([WRITE, record(0, "write", 12, 30, value=2), record(0, "read", 40, 50, value=1)],
                                    0),
    # 20:00:00.1 in the zone of the write is 19:00:00.1 in UTC; a read that began a ns later is behind it.
    "dates of two zones": ([record(0, "write", f"{DAY}T20:00:00+01:00", f"{DAY}T20:00:00.1+01:00", value=1),
                            record(1, "read", f"{DAY}T19:00:00.100000001Z", f"{DAY}T19:00:01Z", value=None)], 1),
    "dates that touch": ([record(0, "write", f"{DAY} 20:00:00,000", f"{DAY} 20:00:00,100", value=1),
                          record(1, "read", f"{DAY} 20:00:00,100", f"{DAY} 20:00:01,000", value=None)], 0),
}  # fmt: skip


@pytest.mark.parametrize("what", RECORDS)
@pytest.mark.parametrize("array", [False, True])
def test_one_record_for_each_operation(
    what: str, array: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their times order them; where they do not say that one was over before another began, they overlap."""
    found, code = RECORDS[what]
    (tmp_path / "h.json").write_text(json.dumps(found, indent=1) if array else lines(*found))
    assert harness(capsys, "check", tmp_path / "h.json")[0] == code


BAD_RECORDS: dict[str, tuple[dict[str, Any], str]] = {
    "no client": ({"op": "lock", "start": 1, "end": 2}, "a record needs its client"),
    "a client of another kind": (record(1.5, "read", 1, 2), "the client is 1.5, neither"),
    "no name": ({"client": 0, "start": 1, "end": 2}, "a record needs the name of its operation"),
    "no number": (record(0, "read", 1, "2026-01-01", value=1), 'end is "2026-01-01", not a date such'),
    "it ends before it starts": (record(0, "read", 3, 2, value=1), "it ends at 2, before its start at 3"),
    "a write of nothing": (record(0, "write", 1, 2), "a write needs its value"),
    "a read of unknown result": (record(0, "read", 1, 2), "a read needs its output; null says"),
    "a value that may be both": (record(0, "acquire", 1, 2, value=7), "may be its argument or its result"),
    "twice the argument": (record(0, "write", 1, 2, input=1, arg=2), "'input' and 'arg' mean the same"),
    "an outcome of another kind": (record(0, "read", 1, 2, status="done"), 'the outcome is "done", not ok, fail or'),
    "an outcome by another name": (record(0, "read", 1, 2, value=1, failure=True), "the field 'failure' is not"),
    "ok with an error": (record(0, "read", 1, 2, type="ok", error="x"), "the outcome is ok, and yet it has an error"),
    "an answer that says nothing": (record(0, "cas", 1, 2, input=[1, 2], output="OK"), "answered with true or false"),
    "two locks at a time": (record(0, "acquire", 1, 9), "two operations of client 0 overlap; an acquire needs a"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_RECORDS)
def test_a_record_that_may_mean_two_things_is_refused(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, said = BAD_RECORDS[what]
    others = [record(0, "acquire", 1, 2), bad] if what == "two locks at a time" else [bad]
    (tmp_path / "h.jsonl").write_text(lines(*others, record(7, "read", 20, 30, value=1)))
    code, found, err = harness(capsys, "check", tmp_path / "h.jsonl")
    assert (code, len(found), err) == (2, 1, "")
    assert f"h.jsonl:{len(others)}: " in found[0] or what == "two locks at a time"
    assert said in found[0]


def test_dates_and_numbers_have_no_common_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As ns since 1970 each date would be after each small number, and a stale read in order."""
    (tmp_path / "h.jsonl").write_text(lines(WRITE, record(1, "read", f"{DAY}T20:00:00Z", f"{DAY}T20:00:01Z", value=1)))
    code, found, _ = harness(capsys, "check", tmp_path / "h.jsonl")
    assert code == 2
    assert "h.jsonl:2: some times are dates, and others are not" in found[0]


@pytest.mark.parametrize("one", [1, f"{DAY}T20:00:00"])
def test_events_with_times_of_two_kinds_are_refused(
    one: int | str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A date without a zone may be hours before or after one that has one."""
    event = {"key": "k", "f": "read", "process": 0, "value": None}
    events = [{**event, "type": "invoke", "time": one}, {**event, "type": "ok", "time": f"{DAY}T20:00:00Z"}]
    (tmp_path / "h.jsonl").write_text(lines(*events))
    code, found, _ = harness(capsys, "check", tmp_path / "h.jsonl", "--model", "register")
    assert (code, "h.jsonl:2: some times are dates" in found[0]) == (2, True)


def test_events_may_have_dates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The read stands first in the file; by its time it began after the write had returned."""
    at = {"key": "k", "f": "read", "process": 1, "value": None}
    write = {"key": "k", "f": "write", "process": 0, "value": 1}
    events = [
        {**at, "type": "invoke", "time": f"{DAY}T10:00:02Z"},
        {**at, "type": "ok", "time": f"{DAY}T10:00:03Z"},
        {**write, "type": "invoke", "time": f"{DAY}T10:00:00Z"},
        {**write, "type": "ok", "time": f"{DAY}T10:00:01Z"},
    ]
    (tmp_path / "h.jsonl").write_text(lines(*events))
    assert harness(capsys, "check", tmp_path / "h.jsonl", "--order", "time", "--model", "register")[0] == 1
    assert harness(capsys, "check", tmp_path / "h.jsonl", "--model", "register")[0] == 0


def test_fields_of_records_that_are_not_read_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "h.jsonl").write_text(lines({**WRITE, "region": "eu"}, {**WRITE, "client": 3, "region": "us"}))
    _, found, _ = harness(capsys, "check", tmp_path / "h.jsonl")
    assert "  note: 2 fields 'region' of records are not read" in found


def operation(client: int, call: int, back: int, given: Any, output: Any) -> dict[str, Any]:
    return {"ClientId": client, "Input": given, "Call": call, "Output": output, "Return": back}


def event(client: int, back: bool, value: Any, number: int) -> dict[str, Any]:
    return {"ClientId": client, "Kind": back, "Value": value, "Id": number}


PUT, GET = {"Op": 1, "Key": "a", "Value": "x"}, {"Op": 0, "Key": "a", "Value": ""}
NAMED = {"Op": "Put", "Key": "a", "Value": "x"}
WRITE_1, READ = {"Op": False, "Value": 1}, {"Op": True, "Value": 0}
ETCD_READ, ETCD_CAS = {"Op": 0, "Arg1": 0, "Arg2": 0}, {"Op": 2, "Arg1": 1, "Arg2": 2}
NOTHING = {"Ok": False, "Exists": False, "Value": 0, "Unknown": False}
PORCUPINE: dict[str, tuple[list[dict[str, Any]], int]] = {
    "numbers, good": ([operation(0, 1, 5, PUT, {"Value": ""}), operation(1, 6, 7, GET, {"Value": "x"})], 0),
    "numbers, lost": ([operation(0, 1, 5, PUT, {"Value": ""}), operation(1, 6, 7, GET, {"Value": ""})], 1),
    "names, at once": ([operation(0, 1, 5, NAMED, {}), operation(0, 2, 7, GET, {"Value": ""})], 0),
    "names, lost": ([operation(0, 1, 5, NAMED, None), operation(0, 6, 7, GET, {"Value": ""})], 1),
    "an error": ([operation(0, 1, 5, NAMED, {"Err": "timeout"}), operation(1, 6, 7, GET, {"Value": ""})], 0),
    "a register from 0": ([operation(0, 1, 5, READ, 0), operation(0, 6, 7, WRITE_1, 0)], 0),
    "a register, stale": ([operation(0, 1, 5, WRITE_1, 0), operation(0, 6, 7, READ, 0)], 1),
    "etcd's, absent": ([operation(0, 1, 2, ETCD_READ, NOTHING), operation(0, 3, 4, ETCD_CAS, NOTHING)], 0),
    "etcd's, cas": ([operation(0, 1, 2, ETCD_READ, NOTHING), operation(0, 3, 4, ETCD_CAS, {**NOTHING, "Ok": True})], 1),
    "names of Python": ([{"client_id": n, "input": i, "call": c, "output": o, "return": c + 1} for n, i, c, o in (
        (0, {"op": "put", "key": "a", "value": "x"}, 1, None), (1, {"op": "get", "key": "a"}, 5, {"value": ""}))], 1),
    "events, good": ([event(0, False, PUT, 0), event(1, False, GET, 1), event(1, True, {"Value": ""}, 1),
                      event(0, True, {}, 0)], 0),
    "events, lost": ([event(0, False, PUT, 0), event(0, True, {}, 0), event(1, False, GET, 1),
                      event(1, True, {"Value": ""}, 1)], 1),
    "events, one open": ([event(0, False, PUT, 0), event(1, False, GET, 1), event(1, True, {"Value": "x"}, 1)], 0),
}  # fmt: skip


@pytest.mark.parametrize("what", PORCUPINE)
@pytest.mark.parametrize("array", [False, True])
def test_porcupines_operations_and_events(
    what: str, array: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, code = PORCUPINE[what]
    (tmp_path / "h.json").write_text(json.dumps(found) if array else lines(*found))
    got, out, _ = harness(capsys, "check", tmp_path / "h.json")
    assert got == code, out


BAD_PORCUPINE: dict[str, tuple[dict[str, Any], str]] = {
    "a number without a key": (operation(0, 1, 2, {"Op": 1, "Value": "x"}, {}), "neither Key nor Arg1"),
    "a number of another kind": (operation(0, 1, 2, {"Op": 3, "Key": "x"}, {}), "only 0, 1 and 2 have a meaning"),
    "a get with a value": (operation(0, 1, 2, {"Op": 0, "Key": "a", "Value": "x"}, {}), "Op 0 is a get here"),
    "a put with a result": (operation(0, 1, 2, PUT, {"Value": "x"}), "a put has no result"),
    "an input of another kind": (operation(0, 1, 2, 7, {}), "Input is 7, not an object"),
    "a field of another kind": (operation(0, 1, 2, {**PUT, "Ttl": 5}, {}), "the field 'ttl' of Input is not known"),
    "an output of another kind": (operation(0, 1, 2, GET, {"Text": "x"}), "the field 'text' of Output is not known"),
    "a return without a call": (event(0, True, {}, 4), "the return of 4, which was not called"),
    "no kind": (event(0, 1, PUT, 4), "Kind is 1, neither"),  # type: ignore[arg-type]
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_PORCUPINE)
def test_types_of_porcupines_users_that_mean_nothing_here_are_refused(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, said = BAD_PORCUPINE[what]
    (tmp_path / "h.json").write_text(lines(bad))
    code, found, err = harness(capsys, "check", tmp_path / "h.json")
    assert (code, len(found), err) == (2, 1, "")
    assert "h.json:1: " in found[0]
    assert said in found[0]


def etcd(call: int, kind: str, what: Any, answer: Any, revision: int = 5, **more: Any) -> dict[str, Any]:
    name = kind.capitalize()
    output = {"Error": "", "Persisted": False, "Revision": revision, name: answer, **more}
    given = {"Type": kind, "Range": None, "Txn": None, "LeaseGrant": None, name: what}
    return {"ClientID": call % 3, "Input": given, "Call": call, "Output": output, "Return": call + 1}


def put(key: str, value: str, lease: int = 0) -> dict[str, Any]:
    return {"Type": "put-operation", "Put": {"Key": key, "Value": {"Value": value}, "LeaseID": lease}}


def txn(call: int, *steps: Any, conditions: Any = None, **more: Any) -> dict[str, Any]:
    what = {"Conditions": conditions, "OperationsOnSuccess": steps, "OperationsOnFailure": None}
    return etcd(call, "txn", what, {"Failure": False, "Results": [{"KVs": None} for _ in steps]}, **more)


def get(call: int, key: str, value: str | None, **more: Any) -> dict[str, Any]:
    found = [] if value is None else [{"Key": key, "Value": {"Value": value}, "ModRevision": 3}]
    what = {"Start": key, "End": "", "Limit": 0, "Revision": 0}
    return etcd(call, "range", what, {"KVs": found, "Count": len(found)}, **more)


def delete(key: str) -> dict[str, Any]:
    return {"Type": "delete-operation", "Delete": {"Key": key}}


LEASED = [txn(10, put("b", "1", lease=7)), get(20, "b", None)]
IF = [{"Key": "b", "ExpectedRevision": 3}]
ROBUSTNESS: dict[str, tuple[list[dict[str, Any]], int, str]] = {
    "good": ([txn(10, put("a", "1")), get(20, "a", "1"), txn(30, delete("a")), get(40, "a", None)], 0, ""),
    "stale": ([txn(10, put("a", "1")), txn(20, put("a", "2")), get(30, "a", "1")], 1, ""),
    "an error": ([txn(10, put("a", "1"), Error="timed out"), get(30, "a", "1"), get(40, "a", "1")], 0, "1 requests"),
    "of a member": ([txn(10, put("a", "1")), get(20, "a", None, revision=-1)], 0, "1 reads of an old revision"),
    "two keys at once": ([txn(10, put("a", "1"), put("b", "2")), get(20, "b", None)], 1, "1 transactions of several"),
    "a lease": ([txn(5, put("a", "1")), *LEASED], 0, "1 keys with 2 operations are not judged; the first, b, for"),
    "a condition": ([txn(5, put("a", "1")), txn(10, put("b", "1"), conditions=IF)], 0, "a transaction with a cond"),
    "only such": ([txn(10, put("b", "1"), conditions=IF), get(20, "b", "9")], 2, "no key can be judged"),
    "an answer of another key": ([etcd(10, "range", {"Start": "a"}, {"KVs": [{"Key": "b"}]})], 2, "h.json:1: the ans"),
    "another request": ([txn(10, put("a", "1")), etcd(20, "watch", {}, {})], 2, 'h.json:2: the Type is "watch"'),
}  # fmt: skip


@pytest.mark.parametrize("what", ROBUSTNESS)
def test_operations_of_etcds_robustness_tests(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Keys that get, put and delete can say are judged; what is left out is counted."""
    found, code, said = ROBUSTNESS[what]
    (tmp_path / "h.json").write_text(lines(*found))
    got, out, _ = harness(capsys, "check", tmp_path / "h.json")
    assert got == code, out
    assert said in "\n".join(out)


CONSOLES: dict[str, tuple[str, int, str]] = {
    "history.txt": ("0\t:invoke\t:write\t1\n0\t:ok\t:write\t1\n1\t:invoke\t:read\tnil\n1\t:ok\t:read\t1\n", 0, ""),
    "history.txt, stale": ("0\t:invoke\t:write\t1\n0\t:ok\t:write\t1\n1\t:invoke\t:read\tnil\n1\t:ok\t:read\tnil\n", 1,
                           ""),
    "an error of several lines": (
        ":nemesis\t:info\t:start\tnil\n0\t:invoke\t:write\t1\n0\t:info\t:write\t1\tjava.net.Error: a\n\tat b.c(d)\n"
        "0\t:invoke\t:read\tnil\n0\t:ok\t:read\t1\n", 0, "1 lines that are no events are ignored"),
    "history.txt, a line of no event": ("0\t:invoke\t:write\t1\nwhat is this\n", 2, "h.log:2: not an event of a hist"),
    "history.txt, a value that is none": ("0\t:invoke\t:write\t[1\n", 2, "h.log:1: the value cannot be read"),
    "each cas has a key": ("0\t:invoke\t:cas\t[:x 0 1]\n0\t:fail\t:cas\t[:x 0 1]\n1\t:invoke\t:read\t[:x nil]\n"
                           "1\t:ok\t:read\t[:x nil]\n", 0, "every value is taken for [key value]"),
    "a console of today": (
        "lein run test\nINFO [2020-05-11 13:10:28,123] main - jepsen.core Running\n"
        "INFO [2020-05-11 13:10:28,124] jepsen worker 0 - jepsen.util 0\t:invoke\t:write\t1\n"
        "java.lang.Exception\n\tat x\n"
        "INFO [2020-05-11 13:10:28,125] jepsen worker 0 - jepsen.util 0\t:ok\t:write\t1\n"
        "2018-04-12 17:26:47,541{GMT}\tINFO\t[jepsen worker 1] jepsen.util: 1\t:invoke\t:read\tnil\n"
        "2018-04-12 17:26:47,542{GMT}\tINFO\t[jepsen worker 1] jepsen.util: 1\t:ok\t:read\tnil\n"
        "{:valid? true}\n", 1, "5 lines that are no events are ignored"),
    "a console with a broken event": (
        "INFO  jepsen.util - 4\t:invoke\t:read\tnil\nINFO  jepsen.ut l - 4\t:ok\t:read\tnil\n", 2,
        "h.log:2: not a line of an etcd log"),
    "JSON behind other lines": (
        'INFO main - starting\n$ run\n\n{"process":0,"type":"invoke","f":"write","value":1}\n'
        '{"process":0,"type":"ok","f":"write","value":1}\n', 0, "2 lines that are no events are ignored"),
    "JSON behind other lines, broken": (
        'starting\n{"process":0,"type":"invoke","f":"write","value":1}\n{"process":0\n{}\n', 2, "h.log:3: not a JSON"),
    "records behind other lines": (
        'starting\n{"client":0,"op":"write","value":1,"start":1,"end":2}\n'
        '{"client":0,"op":"read","value":2,"start":3,"end":4}\n', 1, "1 lines that are no"),
    "EDN behind other lines": (
        "[INFO] starting\n{:process 0 :type :invoke :f :write :value 1}\n", 2, "nothing checked"),
    "vectors in place of maps": (
        "[[:process 0 :type :invoke :f :write :value 1]\n [:process 0 :type :ok :f :write :value 1]\n"
        " [[:process 1] [:type :invoke] [:f :read]] [[:process 1] [:type :ok] [:f :read] [:value 2]]]\n", 1, "read 2"),
    "vectors of 4": ("[0 :invoke :write 1]\n[0 :ok :write 1]\n[1 :invoke :read nil]\n[1 :ok :read 2]\n", 1, "read 2"),
    "vectors of four, broken": ("[0 :invoke :write 1]\n[0 :done :write 1]\n", 2, "h.log:2: an operation is a map"),
    "reads of keys": ("0\t:invoke\t:write\t[1 5]\n0\t:ok\t:write\t[1 5]\n0\t:invoke\t:write\t[2 6]\n"
                      "0\t:ok\t:write\t[2 6]\n1\t:invoke\t:read\t[1 nil]\n1\t:ok\t:read\t[1 5]\n", 0, "taken for [key"),
    "values that are lists": ("0\t:invoke\t:write\t[1 5]\n0\t:ok\t:write\t[1 5]\n0\t:invoke\t:write\t[2 6]\n"
                              "0\t:ok\t:write\t[2 6]\n1\t:invoke\t:read\tnil\n1\t:ok\t:read\t[1 5]\n", 1, ""),
    "keys of EDN": ("[{:process 0 :type :invoke :f :write :value [1 2]}\n {:process 0 :type :ok :f :write :value [1 2]}"
                    "\n{:process 0 :type :invoke :f :cas :value [1 2 3]} {:process 0 :type :ok :f :cas :value [1 2 3]}"
                    "{:process 0 :type :invoke :f :read :value [2 nil]} {:process 0 :type :ok :f :read :value [2 3]}]",
                    1, "on key 2"),
}  # fmt: skip


@pytest.mark.parametrize("what", CONSOLES)
def test_text_of_jepsen_and_lines_that_are_no_events(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, code, said = CONSOLES[what]
    (tmp_path / "h.log").write_text(text)
    got, out, err = harness(capsys, "check", tmp_path / "h.log")
    assert (got, err) == (code, ""), out
    assert said in "\n".join(out)


def sent(value: int, key: str = "null", client: int = 0, result: str = "SUCCESS") -> str:
    return (f"{client}\tenqueue\tREQUEST\t{value}\t{key}\t1700000000000\tnull\n"
            f"{client}\tenqueue\tRESPONSE\t{result}\t{value}\t{key}\t1700000000010\t10\tnull\t0\n")  # fmt: skip


def got(value: int, key: str = "null") -> str:
    return f"1\tdequeue\tRESPONSE\tSUCCESS\t{value}\t{key}\t1700000000020\t5\tnull\t12\n"


DRAINED = ("1\tdequeue\tREQUEST\tnull\tnull\t1700000000030\tnull\n"
           "1\tdequeue\tRESPONSE\tFAILURE\tnull\tnull\t1700000000040\t5\tnull\t0\n")  # fmt: skip
FAULT = "fault\tminor-kill\tstart\t1700000000021\n"
OPENCHAOS: dict[str, tuple[str, int, str]] = {
    "good": (sent(1) + got(1) + sent(2) + got(2), 0, "2 acknowledged messages delivered"),
    "of unknown outcome": (sent(1) + got(1) + sent(2, result="FAILURE") + sent(3, result="UNKNOWN") + got(3), 0, ""),
    "more than once": (sent(1) + got(1) + got(1), 0, "1 deliveries more than once"),
    "from nowhere": (sent(1) + got(1) + got(7), 1, "never-sent: 1 message delivered, and never enqueued, the first"),
    "before it was sent": (got(1) + sent(1), 1, "read-before-send"),
    "not delivered, not read to the end": (sent(1) + sent(2) + got(2), 2, "1 acknowledged messages were not delivered"),
    "not delivered, read to the end": (sent(1) + sent(2) + got(2) + DRAINED, 1, "lost: 1 message acknowledged"),
    "not delivered while a fault was active": (sent(1) + sent(2) + got(2) + FAULT + DRAINED, 2, "not delivered"),
    "in order": (sent(1, "k") + sent(2, "k") + got(1, "k") + got(2, "k") + got(1, "k"), 0, ""),
    "out of order": (sent(1, "k") + sent(2, "k") + got(2, "k") + got(1, "k"), 1, "reordered"),
    "an older version": ("0\tenqueue\tREQUEST\t1\t1700000000000\n"
                         "0\tenqueue\tRESPONSE\tSUCCESS\t1\tk\t1700000000010\t10\n" + got(1), 0, ""),
    "the same value twice": (sent(1) + sent(1) + got(1), 2, "the value '1' was enqueued twice"),
    "nothing": (sent(1, result="UNKNOWN"), 2, "nothing checked"),
    "too few columns": (sent(1) + "0\tenqueue\tREQUEST\t1\n", 2, "h.txt:3: a REQUEST of 4 columns"),
    "another result": (sent(1, result="MAYBE"), 2, "h.txt:2: the result is 'MAYBE'"),
    "another operation": ("0\tgetAll\tREQUEST\tnull\tnull\t1700000000000\tnull\n", 2, "h.txt:1: the operation is 'g"),
}  # fmt: skip


@pytest.mark.parametrize("what", OPENCHAOS)
def test_openchaos_history_of_a_queue(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """At least once: what was delivered again is counted. Lost is only what a queue that was read to its end lacks."""
    text, code, said = OPENCHAOS[what]
    (tmp_path / "h.txt").write_text(text)
    for more in ([], ["--workload", "queue"]):
        got, out, err = harness(capsys, "check", tmp_path / "h.txt", *more)
        assert (got, err) == (code, ""), out
        assert said in "\n".join(out)


def micro(*calls: tuple[int, str, str, str, str]) -> str:
    """Process, type of the completion, f, and the values of both events."""
    return "".join(
        f"{{:process {p}, :type :{t}, :f :{f}, :value {value}{more}}}\n"
        for p, type_, f, asked, answer in calls
        for t, value, more in (("invoke", asked.split("|")[0], asked.partition("|")[2]), (type_, answer, ""))
    )


SEND_10, SEND_11 = (0, "ok", "send", "[[:send 1 10]]", "[[:send 1 [0 10]]]"), (
    0, "ok", "send", "[[:send 1 11]]", "[[:send 1 [2 11]]]")  # fmt: skip
ASSIGN = (1, "ok", "assign", "[1]|, :seek-to-beginning? true", "[1]")
MICRO: dict[str, tuple[str, int, str]] = {
    "good": (micro(SEND_10, SEND_11, ASSIGN, (1, "ok", "poll", "[[:poll]]", "[[:poll {1 [[0 10] [2 11]]}]]")), 0,
             "the last polls of 1 queues, from the start on, count as final reads"),
    "in two polls": (micro(SEND_10, SEND_11, ASSIGN, (1, "ok", "poll", "[[:poll]]", "[[:poll {1 [[0 10]]}]]"),
                           (1, "ok", "poll", "[[:poll]]", "[[:poll {1 [[2 11]]}]]")), 0, ""),
    "lost": (micro(SEND_10, SEND_11, ASSIGN, (1, "ok", "poll", "[[:poll]]", "[[:poll {1 [[2 11]]}]]")), 1,
             "message 1 is 10 of 1"),
    "lost, wherever they began": (micro(SEND_10, SEND_11, (1, "ok", "poll", "[[:poll]]", "[[:poll {1 [[2 11]]}]]")), 1,
                                  "as in jepsen.tests.kafka"),
    "perhaps polled": (micro(SEND_10, (2, "info", "poll", "[[:poll]]", "[[:poll]]"), SEND_11,
                             (1, "ok", "poll", "[[:poll]]", "[[:poll {1 [[2 11]]}]]")), 2, ""),
    "all polled, whatever else was": (
        micro(SEND_10, (2, "info", "poll", "[[:poll]]", "[[:poll]]"),
              (1, "ok", "poll", "[[:poll]]", "[[:poll {1 [[0 10]]}]]")), 0, ""),
    "a consumer that subscribed": (
        micro((0, "ok", "subscribe", "[1]", "[1]"), SEND_10, SEND_11,
              (0, "ok", "poll", "[[:poll]]", "[[:poll {1 [[2 11]]}]]"),
              (0, "ok", "poll", "[[:poll]]", "[[:poll {1 [[0 10]]}]]")), 0, "its positions are not judged"),
    "not polled so far": (micro(SEND_10, SEND_11, ASSIGN, (1, "ok", "poll", "[[:poll]]", "[[:poll {1 [[0 10]]}]]")), 2,
                          "the rest of the queue could not be read to the end"),
    "two values at one offset": (micro(SEND_10, (0, "ok", "send", "[[:send 1 11]]", "[[:send 1 [0 11]]]"), ASSIGN,
                                       (1, "ok", "poll", "[[:poll]]", "[[:poll {1 [[0 10]]}]]")), 1, ""),
    "aborted": (micro(SEND_10, (0, "fail", "txn", "[[:send 1 11] [:poll]]", "[[:send 1 11] [:poll]]"), ASSIGN,
                      (1, "ok", "poll", "[[:poll]]", "[[:poll {1 [[0 10] [2 11]]}]]")), 1, "aborted-read"),
    "a transaction of both": (micro(SEND_10, ASSIGN, (1, "ok", "txn", "[[:send 1 11] [:poll]]",
                                                      "[[:send 1 [2 11]] [:poll {1 [[0 10]]}]]"),
                                    ASSIGN, (1, "ok", "poll", "[[:poll]]", "[[:poll {1 [[0 10] [2 11]]}]]")), 0,
                              "not judged as a transaction"),
    "names for keys": (micro(*((p, t, f, a.replace(" 1 ", ' "k" '), b.replace(" 1 ", ' "k" ')) for p, t, f, a, b in (
        SEND_10, SEND_11))) + micro((1, "ok", "poll", "[[:poll]]", '[[:poll {"k" [[0 10] [2 11]]}]]')), 0, ""),
    "a poll of no map": (micro(SEND_10, (1, "ok", "poll", "[[:poll]]", "[[:poll [1 2]]]")), 2, "op 3: a poll shows a"),
    "another send": (micro((0, "ok", "send", "[[:send 1 10]]", "[[:send 1 [0 12]]]")), 2, 'op 1: ["send", 1, [0'),
    "another operation": (micro(SEND_10, (0, "ok", "rewind", "nil", "nil")), 2, "op 2: the operation 'rewind' is none"),
}  # fmt: skip


@pytest.mark.parametrize("what", MICRO)
def test_micro_ops_of_jepsens_kafka_test_are_judged_as_logs(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without an option: offsets have gaps there, and consumers show what is lost, as in its own checker."""
    text, code, said = MICRO[what]
    (tmp_path / "h.edn").write_text(text)
    for more in ([], ["--workload", "log"]):
        got, out, err = harness(capsys, "check", tmp_path / "h.edn", *more)
        assert (got, err) == (code, ""), out
        assert said in "\n".join(out)


def call(f: str, asked: Any, answer: Any, key: str | None = "q", process: int = 0, **extra: Any) -> str:
    both = (("invoke", asked), ("ok", answer))
    return lines(*({"process": process, "type": t, "f": f, "key": key, "value": v, "extra": extra} for t, v in both))


A, B = call("send", "a", [0, "a"]), call("send", "b", [1, "b"])
TEXTS: dict[str, tuple[str, int, str]] = {
    "all kept": (A + B + call("replica-read", 0, [[0, "a"], [1, "b"]], role="master", done=True), 0, ""),
    "one is lost": (A + B + call("replica-read", 0, [[0, "a"]], role="master", max=1), 1, "message 2 is b"),
    "one was never sent": (A + call("replica-read", 0, [[0, "a"], [1, "c"]], done=True), 1, "the first: c"),
    "numbers and texts": (A + call("send", 7, [1, 7]) + call("replica-read", 0, [[0, "a"], [1, 7]], done=True), 0, ""),
    "zero": (call("send", 0, [0, 0]) + call("replica-read", 0, [[0, 0]], done=True), 0, ""),
    "one is sent twice": (A + A, 2, "a send has a positive number as its id, not 'a'"),
    "another one is acknowledged": (call("send", "a", [0, "b"]), 2, "is acknowledged as [offset, id], not [0, 'b']"),
}  # fmt: skip


@pytest.mark.parametrize("what", TEXTS)
def test_ids_of_messages_may_be_texts(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, code, said = TEXTS[what]
    (tmp_path / "mq.jsonl").write_text(text)
    got, out, _ = harness(capsys, "check", tmp_path / "mq.jsonl", "--workload", "log")
    assert got == code, out
    assert said in "\n".join(out)


ONE, TWO, THREE = (call("send", n, [at, n]) for n, at in ((1, 0), (2, 2), (3, 5)))
GAPS: dict[str, tuple[str, int, int]] = {
    "all read": (ONE + TWO + call("replica-read", 0, [[0, 1], [2, 2]], role="master", min=0, max=4, done=True), 1, 0),
    "a poll begins in a gap": (ONE + TWO + call("poll", 1, [[2, 2]], max=3)
                               + call("replica-read", 0, [[0, 1], [2, 2]], done=True), 1, 0),
    "one is passed over": (ONE + TWO + THREE + call("replica-read", 0, [[0, 1], [5, 3]], role="master", done=True), 1,
                           1),
    "the last one is missing": (ONE + TWO + call("replica-read", 0, [[0, 1]], role="master", max=1), 1, 1),
    "a poll goes back": (ONE + TWO + THREE + call("poll", None, [[2, 2]]) + call("poll", None, [[0, 1]])
                         + call("replica-read", 0, [[0, 1], [2, 2], [5, 3]], done=True), 1, 1),
    "two at one place": (ONE + call("send", 2, [0, 2]) + call("replica-read", 0, [[0, 1]], done=True), 1, 1),
}  # fmt: skip


@pytest.mark.parametrize("what", GAPS)
def test_offsets_with_gaps(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A gap that nobody knows a message of is none; a known message that is passed over is as lost as ever."""
    text, dense, sparse = GAPS[what]
    (tmp_path / "mq.jsonl").write_text(text)
    check = ("check", tmp_path / "mq.jsonl", "--workload", "log")
    assert harness(capsys, *check)[0] == dense
    code, out, _ = harness(capsys, *check, "--offsets", "sparse")
    assert code == sparse, out


FIRST, SECOND = call("send", 1, [0, 1]), call("send", 2, [1, 2])
FINAL: dict[str, tuple[str, int]] = {
    "from the start, by offsets": (FIRST + SECOND + call("poll", 0, [[0, 1]], process=1)
                                   + call("poll", 1, [[1, 2]], process=1), 0),
    "from the start, after a seek": (FIRST + SECOND + call("seek", 0, 0, process=1)
                                     + call("poll", None, [[0, 1], [1, 2]], process=1), 0),
    "the end is named, and one is missing": (FIRST + SECOND + call("poll", 0, [[0, 1]], process=1, max=1), 2),
    "one is passed over": (FIRST + SECOND + call("send", 3, [2, 3]) + call("poll", 0, [[0, 1], [2, 3]], process=1), 1),
    "not from the start": (FIRST + SECOND + call("poll", 1, [[1, 2]], process=1), 2),
    "of two processes": (FIRST + SECOND + call("poll", 0, [[0, 1]], process=1) + call("poll", 1, [[1, 2]], process=2),
                         2),
    "before the last send": (FIRST + call("poll", 0, [[0, 1]], process=1) + SECOND
                             + call("poll", 1, [[1, 2]], process=1), 2),
    "with a gap between them": (FIRST + SECOND + call("poll", 0, [], process=1)
                                + call("poll", 1, [[1, 2]], process=1), 2),
    "a seek to the middle": (FIRST + SECOND + call("seek", 1, 1, process=1) + call("poll", None, [[1, 2]], process=1),
                             2),
    "expired between two polls": (FIRST + SECOND + call("send", 3, [2, 3]) + call("poll", 0, [[0, 1]], process=1, min=0)
                                  + call("poll", 1, [[2, 3]], process=1, min=2), 2),
    "expired in front": (FIRST + SECOND + call("poll", 0, [[1, 2]], process=1, min=1, max=2), 2),
    "another message behind": (FIRST + SECOND + call("poll", 0, [[0, 1], [1, 2]], process=1, max=2)
                               + lines({"process": 5, "type": "invoke", "f": "send", "key": "q", "value": 3})
                               + call("poll", 2, [[2, 3]], process=2), 2),
}  # fmt: skip


@pytest.mark.parametrize("what", FINAL)
def test_the_last_polls_are_final_reads_if_they_show_the_whole_queue(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the start, without a step over anything, and after the last acknowledgement; else nothing is proven."""
    text, code = FINAL[what]
    (tmp_path / "mq.jsonl").write_text(text)
    got, out, _ = harness(capsys, "check", tmp_path / "mq.jsonl", "--workload", "log")
    assert got == code, out


def test_a_folder_has_histories_in_json_beside_other_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A list of results, or settings, is no history that cannot be read."""
    (tmp_path / "a.json").write_text(lines(WRITE))
    (tmp_path / "b.json").write_text(json.dumps([{"process": 0, "type": "invoke", "f": "write", "value": 1}], indent=1))
    (tmp_path / "results.json").write_text('{"valid": true, "ops": [1, 2]}')
    (tmp_path / "list.json").write_text("[1, 2]")
    (tmp_path / "torn.json").write_text('{"process": 0')
    _, out, _ = harness(capsys, "check", tmp_path)
    assert [line.split()[0] for line in out if not line.startswith(" ")] == ["a.json", "b.json", "2"]


TABLES: dict[str, tuple[str, int, str]] = {
    "good": ("client,op,key,value,start,end\n0,write,x,1,10,20\n1,read,x,1,21,30\n2,read,y,null,21,30\n", 0, ""),
    "stale": ("client,op,value,start,end\n0,write,1,10,20\n1,read,null,21,30\n", 1, "read absent"),
    "of unknown outcome": ("client,op,value,start,end\nc1,write,a b,10,\nc2,read,a b,21,30\n", 0, ""),
    "an empty read": ("client,op,value,start,end\n1,read,,21,30\n", 2, "h.csv:2: a read needs its output"),
    "a short row": ("client,op,value,start,end\n0,write,1,10\n", 2, "h.csv:2: not a table of operations: 4 cells"),
    "a quote that never ends": ('client,op,value,start,end\n0,write,"1,10,20\n', 2, "h.csv:2: not a table of operat"),
}  # fmt: skip


@pytest.mark.parametrize("what", TABLES)
def test_a_table_has_a_record_in_each_row(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, code, said = TABLES[what]
    (tmp_path / "h.csv").write_text(text)
    got, out, err = harness(capsys, "check", tmp_path / "h.csv")
    assert (got, err) == (code, ""), out
    assert said in "\n".join(out)
