# SPDX-License-Identifier: Apache-2.0
"""`harness check` on forms of files that differ from those of docs/checking.md by a name or by their packing: for each
a good history, and the same one with a violation; and one line for each file that is broken.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import quiet_harness as harness

WROTE = '{"process":0,"type":"invoke","f":"write","value":1}\n{"process":0,"type":"ok","f":"write","value":1}\n'
EVENTS = WROTE + '{"process":1,"type":"invoke","f":"read"}\n{"process":1,"type":"ok","f":"read","value":1}\n'
RECORDS = (
    '{"client":0,"op":"write","value":1,"start":1,"end":2}\n{"client":1,"op":"read","value":1,"start":3,"end":4}\n'
)


def listed(text: str) -> list[object]:
    return [json.loads(line) for line in text.splitlines()]


def renamed(text: str, **names: str) -> str:
    for old, new in names.items():
        text = text.replace(f'"{old}"', f'"{new}"')
    return text


FORMS: dict[str, tuple[str, str, str]] = {
    "an object around the events": (json.dumps({"name": "x", "history": listed(EVENTS)}), '"read", "value": 1', ""),
    "one over several lines": (json.dumps({"operations": listed(RECORDS)}, indent=2), '"read",\n      "value": 1', ""),
    "one object after another, over several lines": (
        "\n".join(json.dumps(event, indent=2) for event in listed(EVENTS)), '"read",\n  "value": 1', "",
    ),
    "capitals and colons": (renamed(EVENTS, ok="OK", invoke=":invoke", write=":write"), '"read","value":1', ""),
    "microseconds": (renamed(RECORDS, start="start_us", end="end_us", op="operation"), '"read","value":1', ""),
    "camel case": (renamed(RECORDS, start="startTime", end="endTime", client="threadId"), '"read","value":1', ""),
    "times of other names": (renamed(RECORDS, start="invoked_at", end="returned_at"), '"read","value":1', ""),
    "a duration": (renamed(RECORDS.replace('"end":2', '"end":1').replace('"end":4', '"end":1'), end="latency"),
                   '"read","value":1', ""),
    "a date and a duration": (
        '{"client":0,"op":"write","value":1,"start":"2026-11-29T10:00:00Z","duration_ms":900}\n'
        '{"client":1,"op":"read","value":1,"start":"2026-11-29T10:00:00.901Z","duration_ms":5}\n',
        '"read","value":1', '"read","value":null',
    ),
    "the name as the type": (renamed(RECORDS, op="type"), '"read","value":1', ""),
    "the answer of a client of Redis": (
        renamed(RECORDS, read="GET", write="SET").replace('"value":1,"start":3', '"ret":1,"start":3'), '"ret":1', "",
    ),
    "a cas with its parts": (
        '{"client":0,"op":"compareAndSet","expected":null,"new":1,"success":true,"start":1,"end":2}\n'
        + RECORDS.splitlines()[1],
        '"read","value":1', "",
    ),
    "a lock of Java": (
        '{"client":"A","op":"tryLock","key":"L","output":true,"start":1,"end":2}\n'
        '{"client":"B","op":"tryLock","key":"L","output":false,"start":3,"end":4}\n',
        '"output":false', '"output":true',
    ),
    "numbers of a store": (renamed(EVENTS, read="get", write="put"), '"get","value":1', ""),
    "a failure that promises nothing": (
        RECORDS + '{"client":0,"op":"write","value":2,"start":5,"end":6,"failed":true}\n'
        '{"client":0,"op":"read","value":2,"start":7,"end":8,"failed":false}\n',
        '"read","value":2', '"read","value":3',
    ),
    "tabs": ("client\top\tvalue\tstart\tend\n0\twrite\t1\t1\t2\n1\tread\t1\t3\t4\n", "read\t1", "read\t9"),
    "semicolons": ("client;op;value;start;end\n0;write;1;1;2\n1;read;1;3;4\n", "read;1", "read;9"),
    "quotes": ('"client","op","value","start","end"\r\n"a","PUT","x, y","1","2"\r\n"b","GET","x, y","3","4"\r\n',
               '"GET","x, y"', '"GET","x"'),
    "a table of events": ("process,type,f,value,time\n0,invoke,write,1,1\n0,ok,write,1,2\n1,invoke,read,,3\n"
                          "1,ok,read,1,4\n", "ok,read,1", "ok,read,9"),
    "events by other names": (renamed(EVENTS, process="client", type="event", f="op"), '"read","value":1', ""),
    "call and return": (renamed(EVENTS, invoke="call", ok="return"), '"read","value":1', ""),
    "events with arguments and results": (
        renamed(EVENTS, f="op").replace('"read","value"', '"read","result"').replace('"value":1}', '"arg":1}', 1),
        '"result":1', "",
    ),
    "a log with other lines": (
        "starting\n" + EVENTS.replace("\n", "\nWARN {connection} reset\n", 2), '"read","value":1', "",
    ),
    "a log with a prefix": (
        "".join(f"2026-11-29T10:00:00Z INFO op={line}\n" for line in EVENTS.splitlines()), '"read","value":1', "",
    ),
    "a refused cas": (
        WROTE + '{"process":0,"type":"invoke","f":"cas","value":[5,6]}\n'
        '{"process":0,"type":"ok","f":"cas","value":false}\n', '"cas","value":false', '"cas","value":true',
    ),
    "a refused lock": (
        renamed(WROTE, write="acquire").replace('"value":1', '"value":null')
        + '{"process":1,"type":"invoke","f":"acquire"}\n{"process":1,"type":"ok","f":"acquire","value":false}\n',
        '"value":false', '"value":true',
    ),
    "Elle's read of nothing": (
        '{:process 0 :type :invoke :f :txn :value [[:w :x 1]]} {:process 0 :type :ok :f :txn :value [[:w :x 1]]}\n'
        '{:process 0 :type :invoke :f :txn :value [[:r :x nil]]} {:process 0 :type :ok :f :txn :value [[:r :x 1]]}\n',
        "[[:r :x 1]]", "[[:r :x nil]]",
    ),
    "processes with the addresses of threads": (
        renamed(EVENTS).replace('"process":1', f'"process":{2**63 + 1}'), '"read","value":1', "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("utf_16", [False, True])
@pytest.mark.parametrize("what", FORMS)
def test_a_form_of_other_names_has_the_right_verdict(
    what: str, utf_16: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without any option; also as PowerShell writes a text."""
    text, old, new = FORMS[what]
    wrong = text.replace(old, new or old[:-1] + "9")
    assert wrong != text
    for code, found in enumerate((text, wrong)):
        (tmp_path / "h.txt").write_text(found, encoding="utf-16" if utf_16 else "utf-8")
        assert harness(capsys, "check", tmp_path / "h.txt")[0] == code


def test_an_operation_that_lasted_longer_overlaps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A duration counts in its own unit from a date: the read began before the write had ended, or after that."""
    for ms, code in ((902, 0), (900, 1)):
        text = FORMS["a date and a duration"][0].replace('"read","value":1', '"read","value":null')
        (tmp_path / "h.jsonl").write_text(text.replace("900", str(ms)))
        assert harness(capsys, "check", tmp_path / "h.jsonl")[0] == code


def test_a_folder_has_an_object_around_events_beside_other_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "h.json").write_text(json.dumps({"name": "x", "history": listed(EVENTS)}))
    (tmp_path / "package.json").write_text(json.dumps({"name": "x", "events": [{"name": "push"}]}))
    code, found = harness(capsys, "check", tmp_path)
    assert (code, [line.split()[0] for line in found]) == (0, ["h.json", "note:"])
    assert found[1] == "  note: the events are those in the field 'history'; not read beside it: 'name'"


BROKEN: dict[str, tuple[str | bytes, str]] = {
    "an object that is no event, and has no end of line": ('{"name": "x"}', "h.txt:1: an operation needs the field"),
    "a file that is cut in its first line": ('{"process":0,"ty', "h.txt:1: not a JSON object: Unterminated string"),
    "an object over several lines that is cut": ('{\n "history": [\n {"process": 0', "h.txt:3: not JSON: "),
    "half of a character in UTF-16": (b"\xff\xfe{", "it begins as a text in UTF-16, and is none"),
    "two names of one column": ("client,op,op,start,end\n0,a,b,1,2\n", "h.txt:1: not a table of operations: the name"),
    "a table in Latin-1": (b"client,op,value,start,end\n0,write,\xe9,1,2\n", "h.txt:2: not UTF-8 text (byte 34 is"),
    "two times of a start": (RECORDS.replace('"end":2', '"call":2'), "the fields 'start' and 'call' mean the same"),
    "times of two units": (renamed(RECORDS, start="start_ms", end="end_us"), "start_ms and end_us have different"),
    "a date and a duration without a unit": (
        '{"client":0,"op":"write","value":1,"start":"2026-11-29T10:00:00Z","duration":900}\n', "duration_ms",
    ),
    "a flag that is none": (RECORDS.replace('"end":2', '"end":2,"timeout":30'), "'timeout' is 30, neither true nor"),
    "half an event in a log": (
        "x\n" + EVENTS + 'y {"process":1,"type":"ok","f":\n', "h.txt:6: not a JSON object of an event",
    ),
    "an op of no model": (renamed(EVENTS, write="wirte"), "no model has `wirte`; is it a `write`?"),
    "steps of a txn": (
        '{"process":0,"type":"invoke","f":"txn","value":[["write","x"]]}\n',
        "no model is implied by txn; multi-register has steps [read, name, value]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_file_is_one_line(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, said = BROKEN[what]
    (tmp_path / "h.txt").write_bytes(found if isinstance(found, bytes) else found.encode())
    code, lines = harness(capsys, "check", tmp_path / "h.txt")
    assert (code, len(lines)) == (2, 1), lines
    assert said in lines[0]
