# SPDX-License-Identifier: Apache-2.0
"""`harness check` on histories as strangers write them: no silent wrong verdict, and a line that helps."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from checkers.linearizability.compiled import jit
from harness.check.decision import DecisionTime
from tests.commands import harness_lines as harness

Step = tuple[str, Any, Any]
"""f, argument, result"""


def events(*steps: Step, **more: Any) -> list[dict[str, Any]]:
    """One op after the other, of one client."""
    return [
        {"process": 0, "type": type_, "f": f, "value": value, **more}
        for f, argument, result in steps
        for type_, value in (("invoke", argument), ("ok", result))
    ]


def jsonl(path: Path, found: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(event) + "\n" for event in found))
    return path


REFUSED: dict[str, tuple[list[Step], str, str]] = {
    "drain of a stack": ([("push", 1, 1), ("drain", None, [1])], "stack", "the model stack has no `drain` (op 2)"),
    "increment of a register": (
        [("write", 1, 1), ("increment", 1, 2), ("read", None, 2)],
        "register",
        "the model register has no `increment` (op 2)",
    ),
    "another name": (
        [("try_acquire", None, True)], "mutex", "the model mutex has no `try_acquire` (op 0); is it a `try-acquire`?",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_an_op_that_the_model_does_not_have_is_refused(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, which names the op, and the option that leaves it out; then a note says so."""
    steps, model, said = REFUSED[what]
    path, name = jsonl(tmp_path / "h.jsonl", events(*steps)), re.findall("`(.*?)`", said)[0]
    code, lines, _ = harness(capsys, "check", path, "--model", model)
    assert (code, len(lines)) == (2, 1)
    assert said in lines[0]
    assert lines[0].endswith(f"; --ignore {name} leaves it out")
    more = [jsonl(tmp_path / "h.jsonl", events(*steps, *steps[:1])), "--model", model, "--ignore", name]
    out = tmp_path / "out.json"
    _, lines, _ = harness(capsys, "check", *more, "--json", out)
    assert any(
        line.startswith("  note: ") and f"ops `{name}` are left out of account (--ignore)" in line for line in lines
    )
    assert any(f"`{name}`" in note for note in json.loads(out.read_text())["notes"])


def test_an_op_that_is_none_of_messages_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A consumer's own word for a poll must not be dropped: it may have seen what was never sent."""
    sent = events(("send", 1, [0, 1]), key="q") + events(("receive", 0, [[0, 99]]), key="q")
    path = jsonl(tmp_path / "mq.jsonl", sent)
    code, lines, _ = harness(capsys, "check", path, "--workload", "log")
    assert (code, len(lines)) == (2, 1)
    assert "the workload log has no `receive` (op 2); --ignore receive leaves it out" in lines[0]
    _, lines, _ = harness(capsys, "check", path, "--workload", "log", "--ignore", "receive")
    assert "  note: 2 ops" not in lines
    assert "  note: 1 ops `receive` are left out of account (--ignore)" in lines
    group = events(("consume", 0, [[0, 1]]), key="q", extra={"group": "g"})
    path = jsonl(tmp_path / "mq.jsonl", sent[:2] + group)
    _, lines, _ = harness(capsys, "check", path, "--workload", "log")
    assert "  note: --workload log does not judge: 1 consume" in lines


OBVIOUS: dict[str, tuple[str, list[Step], int]] = {
    "a key that was deleted": ("kv", [("put", "a", "a"), ("delete", None, None), ("get", None, None)], 0),
    "a key that was not": ("kv", [("put", "a", "a"), ("delete", None, None), ("get", None, "a")], 1),
    "all of a queue": ("fifo-queue", [("enqueue", 1, 1), ("enqueue", 2, 2), ("drain", None, [1, 2])], 0),
    "all of a queue, turned round": ("fifo-queue", [("enqueue", 1, 1), ("enqueue", 2, 2), ("drain", None, [2, 1])], 1),
    "all of a bag, turned round": ("unordered-queue", [("enqueue", 1, 1), ("enqueue", 2, 2), ("drain", 0, [2, 1])], 0),
    "from nowhere": ("unordered-queue", [("enqueue", 1, 1), ("drain", None, [7])], 1),
    "a sum": ("counter", [("add-and-get", 2, 2), ("increment", None, 3), ("get-and-add", -1, 3), ("read", None, 2)], 0),
    "a lost increment": ("counter", [("increment", None, 1), ("increment", None, 1)], 1),
    "a try": ("mutex", [("lock", None, None), ("try-lock", None, False), ("unlock", None, None)], 0),
    "two holders": ("mutex", [("lock", None, None), ("try-lock", None, True)], 1),
    "fences that fall": ("fenced-lock", [("lock", "a", 7), ("unlock", "a", "a"), ("try-acquire", "b", 6)], 1),
    "twice by one owner": ("reentrant-lock", [("lock", "a", None), ("try-lock", "a", True), ("unlock", "a", None)], 0),
    "short names": ("register", [("w", 1, 1), ("r", None, 1)], 0),
    "short names, stale": ("register", [("w", 1, 1), ("w", 2, 2), ("r", None, 1)], 1),
}  # fmt: skip


@pytest.mark.parametrize("what", OBVIOUS)
def test_models_have_the_obvious_ops(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, steps, code = OBVIOUS[what]
    path = jsonl(tmp_path / "h.jsonl", events(*steps))
    for more in ([], ["--no-jit"]):
        assert harness(capsys, "check", path, "--model", model, *more)[0] == code


@pytest.mark.parametrize("outcome", ["fail", "info"])
def test_a_history_in_which_nothing_happened_is_unknown(
    outcome: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of several keys, too; a list that says `valid` is no contradiction. One `ok` is enough to look."""
    idle = [
        {"process": p, "type": t, "f": "write", "key": f"k{p}", "value": 1} for p in (0, 1) for t in ("invoke", outcome)
    ]
    path = jsonl(tmp_path / "h.jsonl", idle)
    code, lines, _ = harness(capsys, "check", path, "--model", "register")
    assert (code, "nothing checked: no" in lines[0] and "known to have happened" in lines[0]) == (2, True)
    (tmp_path / "m.csv").write_text("file,model,verdict\nh.jsonl,register,valid\n")
    assert harness(capsys, "check", tmp_path, "--models", tmp_path / "m.csv")[0] == 0
    (tmp_path / "m.csv").write_text("file,model,verdict\nh.jsonl,register,invalid\n")
    assert harness(capsys, "check", tmp_path, "--models", tmp_path / "m.csv")[0] == 1
    active = jsonl(tmp_path / "h.jsonl", idle + events(("write", 1, 1), key="k2", process=7))
    assert harness(capsys, "check", active, "--model", "register")[0] == 0


def test_messages_of_which_none_was_acknowledged_are_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = [{"process": 0, "type": t, "f": "send", "key": "q", "value": 1} for t in ("invoke", "info")]
    code, lines, _ = harness(capsys, "check", jsonl(tmp_path / "mq.jsonl", lost), "--workload", "log")
    assert (code, "nothing checked: none of 1 ops is known to have happened" in lines[0]) == (2, True)


def txn(*steps: tuple[list[Any], list[Any]]) -> list[dict[str, Any]]:
    return events(*(("txn", [asked], [seen]) for asked, seen in steps))


LOST = txn((["write", "x", 1], ["write", "x", 1]), (["read", "x", None], ["read", "x", None]))
FROM_0 = txn((["r", 9, None], ["r", 9, 0]), (["w", 9, 1], ["w", 9, 1]))


@pytest.mark.parametrize(
    ("found", "options", "code"),
    [
        (LOST, [], 1),
        (LOST, ["--nil-reads", "unset"], 1),
        (LOST, ["--nil-reads", "unrecorded"], 0),
        (FROM_0, [], 1),
        (FROM_0, ["--initial", "0"], 0),
        (FROM_0, ["--initial", "any"], 0),
        ([*FROM_0, *txn((["r", 9, None], ["r", 9, 0]))], ["--initial", "any"], 1),
    ],
)
def test_registers_of_a_txn_begin_with_nothing_and_a_lost_write_shows(
    found: Any, options: list[str], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A read of null saw that there was nothing, unless the dialect says that it was not recorded."""
    assert harness(capsys, "check", jsonl(tmp_path / "h.jsonl", found), *options)[0] == code


def test_knossos_registers_begin_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in its own files; Elle's begin with nothing."""
    for steps, code in (("[[:read :x 0]]", 0), ("[[:r :x 0]]", 1)):
        path = tmp_path / "h.edn"
        path.write_text("".join(f"{{:process 0 :type {t} :f :txn :value {steps}}}\n" for t in (":invoke", ":ok")))
        found, lines, _ = harness(capsys, "check", path)
        noted = "  note: the registers begin with 0, as in Knossos' files (--initial says otherwise)" in lines
        assert (found, noted) == (code, code == 0), lines
    assert harness(capsys, "check", path, "--initial", "0")[0] == 0


@pytest.mark.parametrize(
    ("model", "first", "initial", "code"),
    [
        ("cas-register", ("cas", [0, 1], [0, 1]), "0", 0),
        ("cas-register", ("cas", [0, 1], [0, 1]), "any", 0),
        ("register", ("read", None, "x"), "x", 0),
        ("register", ("read", None, None), "0", 1),
        ("register", ("read", None, None), "nil", 0),
        ("kv", ("get", None, "x"), '"x"', 0),
        ("counter", ("read", None, 7), "7", 0),
        ("counter", ("read", None, 7), "any", 0),
    ],
)
def test_objects_begin_as_one_says(
    model: str, first: Step, initial: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = jsonl(tmp_path / "h.jsonl", events(first))
    assert harness(capsys, "check", path, "--model", model, "--initial", initial)[0] == code
    if code == 0 and initial != "nil":
        assert harness(capsys, "check", path, "--model", model)[0] == 1


def test_a_start_that_cannot_be_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Named with the model it is a wrong command; where the model is implied, it is that file's line."""
    path = jsonl(tmp_path / "h.jsonl", events(("push", 1, 1)))
    for more, said in (
        (["--model", "stack", "--initial", "0"], "the model stack has no start value; register, cas-register, "),
        (["--model", "counter", "--initial", "x"], "the start value of a counter is a whole number, not 'x'"),
        (
            ["--workload", "log", "--initial", "0"],
            "--initial is the start of a model's objects, and the workload 'log'",
        ),
    ):
        code, _, err = harness(capsys, "check", path, *more)
        assert (code, said in err, len(err.splitlines())) == (64, True, 1), err
    code, lines, _ = harness(capsys, "check", path, "--initial", "0")
    assert (code, "the model stack has no start value" in lines[0]) == (2, True)


@pytest.mark.parametrize("f", ["read", "get", "pop", "contains"])
def test_what_only_looks_implies_no_model(f: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Many objects can be read: a bank is no register."""
    path = jsonl(tmp_path / "h.jsonl", events((f, None, {"a": 50})))
    code, lines, _ = harness(capsys, "check", path)
    assert (code, f"no model is implied by {f}; name one with --model" in lines[0]) == (2, True)


@pytest.mark.parametrize(
    ("steps", "model"),
    [
        ([("lock", None, None), ("unlock", None, None)], "mutex"),
        ([("acquire", None, 7), ("release", None, None)], None),
        ([("acquire", None, None), ("acquire", None, None)], None),
        ([("add-and-get", 1, 1)], "counter"),
        ([("append", "x", 0)], None),
        ([("put", "x", "x"), ("delete", None, None)], "kv"),
    ],
)
def test_an_implied_model_is_a_guess_and_said_to_be(
    steps: list[Step], model: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also on the terminal; ops that fit several models imply none."""
    path, out = jsonl(tmp_path / "h.jsonl", events(*steps)), tmp_path / "out.json"
    _, lines, _ = harness(capsys, "check", path, "--json", out)
    assert (f" {model} (implied) " in lines[0]) == (model is not None)
    found = json.loads(out.read_text())
    assert (found.get("implied"), found["model"]) == (None if model is None else True, model)


def test_every_note_of_the_reader_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A read of nil in EDN is left out of account: who does not know that takes the verdict for more than it is."""
    path = tmp_path / "h.edn"
    path.write_text("{:process 0 :type :invoke :f :write :value 1}\n{:process 0 :type :ok :f :write :value 1}\n"
                    "{:process 0 :type :invoke :f :read}\n{:process 0 :type :ok :f :read :value nil}\n")  # fmt: skip
    code, lines, _ = harness(capsys, "check", path)
    assert code == 0
    assert lines[1:] == [
        "  note: the events have no times: the position in the file replaces the time of an event",
        "  note: 1 reads recorded no value and are left out of account",
    ]


def test_a_number_that_was_read_as_a_text_gets_a_hint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = jsonl(tmp_path / "h.jsonl", events(("write", 211, 211), ("read", None, "211")))
    code, lines, _ = harness(capsys, "check", path)
    assert code == 1
    assert lines[1].startswith("  note: 211 is there as a number and as a text, ")
    assert "--values text" in lines[1]
    for values in ("text", "numbers"):
        assert harness(capsys, "check", path, "--values", values)[0] == 0
    assert harness(capsys, "check", jsonl(path, events(("write", 1, 1), ("read", None, 2))))[1][1:] == [
        "  note: nobody wrote 2; if it was there at the start, --initial 2 (or any: nobody knows) says so"
    ]
    code, lines, _ = harness(capsys, "check", jsonl(path, events(("put", 1, 1), ("delete", None, None))))
    assert (code, lines[1]) == (2, "  note: --values text reads all numbers as texts")
    code, lines, _ = harness(capsys, "check", jsonl(path, events(("add", "1", "1"))), "--model", "counter")
    assert (code, lines[1]) == (2, "  note: --values numbers reads texts that are numbers as numbers")


def timed(process: Any, type_: str, f: str, value: Any, time: int) -> dict[str, Any]:
    return {"process": process, "type": type_, "f": f, "value": value, "time": time}


def test_files_of_each_client_are_ordered_by_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One file behind the other: a read while the write was open comes to lie behind it."""
    both = [
        timed(0, "invoke", "write", 1, 10), timed(0, "ok", "write", 1, 20), timed(0, "invoke", "write", 2, 20),
        timed(0, "ok", "write", 2, 30), timed(1, "invoke", "read", None, 12), timed(1, "ok", "read", None, 15),
        timed(1, "invoke", "read", None, 30), timed(1, "ok", "read", 1, 31),
    ]  # fmt: skip
    path = jsonl(tmp_path / "h.jsonl", both)
    code, lines, _ = harness(capsys, "check", path)
    assert (code, lines[1]) == (
        1,
        "  note: 2 events were earlier than the event above them; they get its time (--order time sorts them)",
    )
    # At equal times invocations come first: the last read began when the second write was not over.
    code, lines, _ = harness(capsys, "check", path, "--order", "time")
    assert (code, lines[1:]) == (0, ["  note: the events are ordered by their time"])
    both[6]["time"] = 31
    assert harness(capsys, "check", jsonl(path, both), "--order", "time")[0] == 1
    torn = jsonl(path, [*both, timed(2, "ok", "read", 1, 40)])
    code, lines, _ = harness(capsys, "check", torn, "--order", "time")
    assert (code, "h.jsonl:9: process 2 completes a read that it never invoked" in lines[0]) == (2, True)
    for event in both:
        del event["time"]
    code, lines, _ = harness(capsys, "check", jsonl(path, both), "--order", "time")
    assert (code, "--order time needs the time of each event" in lines[0]) == (2, True)


SAID: dict[str, tuple[str, str]] = {
    "a record of a write of nothing": ('{"process":0,"f":"write","start":1,"end":2}', "a write needs its value"),
    "no type": ('{"process":0,"f":"write","kind":"ok"}', "needs the field 'type'; this one has 'process', 'f', 'kind'"),
    "Porcupine's operations": ('{"ClientId":0,"Input":1,"Call":1,"Output":1,"Return":5}', "Input is 1, not an object"),
    "a table": ("client,op,value,when\n0,write,1,1", "a table (CSV) without the names of operations; the first line"),
    "history.txt": ("0\t:invoke\t:write\t[1", "h.txt:1: the value cannot be read: '[' is never closed"),
    "OpenChaos": ("0\tenqueue\tREQUEST\t1\tnow", "h.txt:1: the time is 'now', not milliseconds"),
    "results.edn": ("{:valid? true, :count 3}", "what Jepsen's checkers found (:valid?), and no history"),
    "Elle": ('{"process":0,"type":"invoke","f":"txn","value":[["append",1,1]]}', "elle-cli checks it"),
    "a cas of a key": (
        "{:process 0 :type :invoke :f :cas :value [1 nil 2]} {:process 1 :type :invoke :f :write :value 3}",
        "with --independent, EDN may have [key",
    ),
    "a broken array": ('[{"process":0}', "not a JSON array of events"),
    "an array of others": ('[{"process":0,"type":"invoke","f":"read"},\n{"a":1}]', "event 1: an operation needs the"),
}  # fmt: skip


@pytest.mark.parametrize("what", SAID)
def test_what_is_no_history_of_ours_is_one_line_that_helps(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, said = SAID[what]
    (tmp_path / "h.txt").write_text(text + "\n")
    code, lines, err = harness(capsys, "check", tmp_path / "h.txt")
    assert (code, len(lines), err) == (2, 1, "")
    assert said in lines[0]


def test_events_may_be_an_array_and_name_their_client(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names are numbers that nobody else has; a name that goes on after an info is another process."""
    found = events(("write", 1, 1))
    for event, name in zip(found, ("c3", "c3"), strict=True):
        event["client"] = name
        del event["process"]
    path = tmp_path / "h.json"
    path.write_text(json.dumps(found, indent=1))
    code, lines, _ = harness(capsys, "check", path)
    assert (code, lines[1:]) == (
        0,
        [
            "  note: the field `client` is the process of the events",
            "  note: 1 processes have names; they get numbers",
        ],
    )
    lost = [{**event, "type": "info" if event["type"] == "ok" else "invoke"} for event in found]
    again = [{"process": 5, "type": t, "f": "write", "value": 2} for t in ("invoke", "ok")]
    path = jsonl(tmp_path / "h.jsonl", [*lost, *again, *lost])
    code, lines, _ = harness(capsys, "check", path)
    assert (code, "  note: 1 processes continued after an info; they get new numbers" in lines) == (0, True), lines
    code, lines, _ = harness(capsys, "check", jsonl(path, [found[0], found[0]]))
    assert (code, "process c3 invokes a write although its write is still open" in lines[0]) == (2, True)


def test_tuples_of_independent_keys_are_seen_by_their_tag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "h.edn").write_text(
        "".join(
            f"{{:process 0 :type :{t} :f :{f} :value {value}}}\n"
            for f, value in (("write", "#jepsen.independent/tuple [1 0]"), ("cas", "[1 [0 3]]"), ("cas", "[1 3 4]"))
            for t in ("invoke", "ok")
        )
    )
    code, lines, _ = harness(capsys, "check", tmp_path / "h.edn")
    assert (code, lines[1]) == (
        0,
        "  note: values are tuples of jepsen.independent: every value is taken for [key value]",
    )


def test_json_may_go_to_standard_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing else does then; no file is called `-`."""
    monkeypatch.chdir(tmp_path)
    jsonl(tmp_path / "h.jsonl", events(("write", 1, 1)))
    code, lines, err = harness(capsys, "check", "h.jsonl", "--json", "-")
    assert (code, [json.loads(line)["verdict"] for line in lines]) == (0, ["valid"])
    assert "cas-register (implied)" in err
    assert not (tmp_path / "-").exists()


def test_the_time_of_a_decision_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time spent on loading and compiling meanwhile does not count, however it is nested."""
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    clock = DecisionTime()
    now[0] = 2.0
    with jit.setting_up():
        now[0] = 5.0
        with jit.setting_up():
            now[0] = 9.0
    now[0] = 10.0
    assert clock.ms == 3_000.0


def test_the_picture_shows_the_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As Jepsen names them: what began, what ended it, and what never ended; in the drawing and as text."""
    nemesis = [("start-partition", {"n1": ["n2"]}), ("kill", ["n3"]), ("stop-partition", None)]
    faults = [
        [{"process": "nemesis", "type": "info", "f": f, "value": value, "time": t + i} for i in (0, 1)]
        for t, (f, value) in zip((20, 40, 60), nemesis, strict=True)
    ]
    ops = [
        {**event, "time": 10 * at}
        for at, event in enumerate(events(("write", 4, 4), ("write", 2, 2), ("read", None, 4)))
    ]
    found = sorted([*ops, *(event for pair in faults for event in pair)], key=lambda event: event["time"])
    page = tmp_path / "out.html"
    assert harness(capsys, "check", jsonl(tmp_path / "h.jsonl", found), "--explain", page)[0] == 1
    text = page.read_text()
    data = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    drawn = json.loads(data[1])
    assert [(label, row) for label, _, _, row in drawn["faults"]] == [
        ('start-partition {"n1": ["n2"]}', 0),
        ('kill ["n3"]', 1),
    ]
    assert [bar[2] for bar in drawn["faults"]] == [5.5, 6]
    assert "<h2>The faults</h2>" in text
    assert text.count("<td>kill [") == 1


def test_elements_that_are_added_in_another_form_than_they_are_read_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A set of another dialect must not pass for one that shows what nobody added."""
    found = events(("add", [0, 1], [0, 1]), ("add", [0, 2], [0, 2]), ("read", None, [1, 2]))
    code, lines, _ = harness(capsys, "check", jsonl(tmp_path / "h.jsonl", found), "--model", "grow-only-set")
    assert (code, "each add has two parts, and each read shows single values" in lines[0]) == (2, True)
    found[-1]["value"] = [[0, 1], [0, 2]]
    assert harness(capsys, "check", jsonl(tmp_path / "h.jsonl", found), "--model", "grow-only-set")[0] == 0


def test_keys_in_values_of_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As in EDN: by the option, or where a read of [key, null] says so."""
    found = events(("write", [1, 5], [1, 5]), ("write", [2, 6], [2, 6]), ("read", None, [1, 5]))
    path = jsonl(tmp_path / "h.jsonl", found)
    assert harness(capsys, "check", path)[0] == 1
    code, lines, _ = harness(capsys, "check", path, "--independent")
    assert (code, "an independent value is [key value]" in lines[0]) == (2, True)
    found[-2]["value"] = [1, None]
    path = jsonl(tmp_path / "h.jsonl", found)
    assert harness(capsys, "check", path)[0] == harness(capsys, "check", path, "--independent")[0] == 0
    found[-1]["value"] = [1, 7]
    assert harness(capsys, "check", jsonl(tmp_path / "h.jsonl", found))[0] == 1
