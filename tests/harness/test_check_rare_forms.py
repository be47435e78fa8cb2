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

from harness.cli.main import cli, guarded


def harness(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> tuple[int, list[str]]:
    code = guarded(lambda: cli.main([str(a) for a in argv], prog_name="harness", standalone_mode=False))
    output = capsys.readouterr()
    assert output.err == ""
    return code, output.out.splitlines()


def lines(*found: dict[str, Any]) -> str:
    return "".join(json.dumps(one) + "\n" for one in found)


def both(process: Any, f: str, argument: Any, result: Any) -> list[dict[str, Any]]:
    return [{"process": process, "type": t, "f": f, "value": v} for t, v in (("invoke", argument), ("ok", result))]


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


REFUSED: dict[str, tuple[bytes, str]] = {
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
    "a cas by another name": (lines(*both(0, "compareAndSet", [1, 2], None)).encode(), "is it a `cas`?"),
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


@pytest.mark.parametrize(("seen", "code"), [({"n": 2}, 0), ({"n": 3}, 1)])
def test_a_register_of_objects_is_judged(
    seen: Any, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also if only a cas has left one."""
    changed = [*both(0, "write", 1, 1), *both(0, "cas", [1, {"n": 2}], [1, {"n": 2}]), *both(1, "read", None, seen)]
    (tmp_path / "h.txt").write_text(lines(*changed))
    assert harness(capsys, "check", tmp_path / "h.txt")[0] == code
