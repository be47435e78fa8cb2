# SPDX-License-Identifier: Apache-2.0
"""`harness check --workload`: a foreign history of messages from the command line."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sim.rocketmq import Bug, simulate

from results.formats import write_jsonl
from results.op import Op
from results.op_table import write_op_table
from tests.commands import harness

GOOD = (
    ("send", 1, [0, 1], {}),
    ("poll", 0, [[0, 1]], {}),
    ("replica-read", 0, [[0, 1]], {"done": True}),
)
BAD = (*GOOD, ("send", 2, [1, 2], {}), ("replica-read", 0, [[0, 1]], {"done": True}))
CONSUMED = (
    *GOOD,
    ("consume", 0, [[0, 1]], {"group": "g"}),
    ("commit", 1, 1, {"group": "g"}),
    ("committed", None, 1, {"group": "g"}),
    ("drain", None, {"committed": 1, "max": 1, "consumed_to": 1}, {"group": "g"}),
)


def tool_data(count: int) -> dict[str, Any]:
    """The last line of a verifiable producer."""
    return {"timestamp": 1041, "name": "tool_data", "sent": count, "acked": 2, "target_throughput": -1}


def write(path: Path, *calls: tuple[str, Any, Any, dict[str, Any]], blank: bool = False) -> Path:
    lines = []
    for f, requested, got, extra in calls:
        for type_, value in (("invoke", requested), ("ok", got)):
            lines.append({"process": 0, "type": type_, "f": f, "key": "q", "value": value, "extra": extra})
    text = ("\n\n" if blank else "\n").join(map(json.dumps, lines)) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize(
    ("calls", "workload", "code", "anomaly"),
    [
        (GOOD, "log", 0, None),
        (BAD, "log", 1, "lost"),
        (GOOD[:1], "log", 2, None),
        (CONSUMED, "queue", 0, None),
        (CONSUMED[:-1], "queue", 2, None),
        ((*CONSUMED[:3], *CONSUMED[4:]), "queue", 1, "lost-to-group"),
        ((*CONSUMED[:4], ("committed", None, 7, {"group": "g"})), "queue", 1, "committed-offset-jump"),
    ],
)
def test_the_exit_code_is_the_verdict_s(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], calls: Any, workload: str, code: int, anomaly: str | None
) -> None:
    path, out = write(tmp_path / "mq.jsonl", *calls), tmp_path / "out.json"
    assert harness(capsys, "check", path, "--workload", workload, "--json", out)[0] == code
    found = json.loads(out.read_text())
    assert (found["model"], found["anomaly"], found["ops"]) == (workload, anomaly, 2 * len(calls))
    assert bool(found["core"]) == (anomaly is not None)


def of_kafka(name: str, value: str, offset: int, **more: Any) -> dict[str, Any]:
    return {
        "timestamp": 1000 + offset, "name": name, "key": None, "value": value, "offset": offset, "topic": "t",
        "partition": 0, **more,
    }  # fmt: skip


def sent(*values: str, begin: int = 0) -> list[dict[str, Any]]:
    return [of_kafka("producer_send_success", value, offset) for offset, value in enumerate(values, begin)]


def read(*values: str, begin: int = 0) -> list[dict[str, Any]]:
    """As kcat prints them."""
    return [
        {"topic": "t", "partition": 0, "offset": offset, "tstype": "create", "ts": 1, "key": None, "payload": value}
        for offset, value in enumerate(values, begin)
    ]


def recorded(*values: str) -> list[dict[str, Any]]:
    return [of_kafka("record_data", value, offset) for offset, value in enumerate(values)]


STARTED = {"timestamp": 1000, "name": "startup_complete"}
REFUSED = {"timestamp": 1030, "name": "producer_send_error", "exception": "E", "value": "2", "key": None, "topic": "t"}
COUNTED = {"timestamp": 1016, "name": "records_consumed", "count": 1, "partitions": []}
OF_KAFKA: dict[str, tuple[list[dict[str, Any]], int, str]] = {
    "kcat": ([STARTED, *sent("0", "1"), *read("0", "1")], 0, "valid"),
    "kcat, twice": ([*sent("0", "1"), *read("0", "1"), *read("0", "1")], 0, "valid"),
    "kcat, another message": ([*sent("0", "1"), tool_data(2), *read("0", "7")], 1, "1 lost, 1 never-sent"),
    "a consumer": ([STARTED, *sent("0", "1"), STARTED, *recorded("0", "1")], 0, "valid"),
    "a consumer, lost": ([*sent("0", "1", "2"), *recorded("0", "1", "2")[::2]], 1, "1 lost"),
    "a consumer, not yet": ([*sent("0", "1"), *recorded("0")], 2, "does not show whether 1 acknowledged messages"),
    "an error, and read": ([*sent("0", "1"), REFUSED, tool_data(3), *read("0", "1", "2")], 0, "valid"),
    "an error, and not read": ([*sent("0", "1"), REFUSED, tool_data(3), *read("0", "1")], 0, "valid"),
    "twice in the log": ([*sent("0", "1"), *read("0", "1", "1")], 1, "1 duplicated"),
    "a producer that was killed": ([*sent("0", "1"), *read("0", "1", "2")], 0, "1 records were read that no producer"),
    "one that reported all": ([*sent("0", "1"), tool_data(2), *read("0", "1", "2")], 1, "1 never-sent"),
    "an earlier run": ([*sent("0", "1", begin=5), *read("0"), *read("0", "1", begin=5)], 0, "1 records in front of"),
    "a begin in the middle": ([*sent("0", "1"), *read("1", begin=1)], 2, "mq.json:1: offset 0 of t-0 was"),
    "only sent": (sent("0"), 2, "it shows what was sent, and not the records that were read"),
    "only counted": ([*sent("0"), COUNTED], 2, "--verbose prints each record"),
    "only read": (read("0"), 2, "it shows what was read, and not what was acknowledged"),
    "two producers": ([*sent("0"), *sent("0", begin=1), *read("0", "0")], 2, "mq.json:2: '0' was sent twice to t-0"),
    "no value": ([*sent("0"), *read("0"), {**read("0")[0], "payload": None}], 2, "a message needs its value, a text"),
    "an offset that is no number": ([{**sent("0")[0], "offset": "0"}], 2, "needs its topic, its partition and its"),
}  # fmt: skip


@pytest.mark.parametrize("log", [False, True], ids=["plain", "with lines of a log"])
@pytest.mark.parametrize("what", OF_KAFKA)
def test_what_kafka_s_own_tools_print(what: str, log: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines, code, said = OF_KAFKA[what]
    text = [json.dumps(line) for line in lines]
    if log:
        text = [*text[:1], "[2026-11-30 17:04:17,352] WARN x (org.apache.kafka)", *text[1:], "% Reached end of topic t"]
    (tmp_path / "mq.json").write_text("".join(f"{line}\n" for line in text))
    found, out, err = harness(capsys, "check", tmp_path / "mq.json")
    assert (found, err) == (code, "")
    assert said in (out.replace("mq.json:3", "mq.json:2") if log else out)


@pytest.mark.parametrize("name", ["mq.jsonl", "mq.jsonl.gz"])
@pytest.mark.parametrize(("blank", "line"), [(False, 2), (True, 3)])
def test_a_bad_value_is_told_with_its_line_and_op(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, blank: bool, line: int
) -> None:
    calls = (("send", 1, None, {}), ("send", -1, [0, -1], {}), ("poll", 0, None, {}))
    path = write(tmp_path / name, *calls, blank=blank)
    code, out, _ = harness(capsys, "check", path, "--workload", "log")
    assert code == 2
    assert f"{path}:{line}: op 1: a send is acknowledged as [offset, id], not null (and 3 more: op 2: a send" in out
    assert "failed" not in out


def test_many_bad_values_are_counted_to_a_few(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "mq.jsonl", *[("send", 0, [0, 0], {})] * 50)
    out = harness(capsys, "check", path, "--workload", "log")[1]
    assert "(and more than 4 more: op 1: " in out
    assert len(out) < 600


def test_a_malformed_history_is_told_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mq.jsonl"
    path.write_text('{"process":0,"type":"ok","f":"send","key":"q","value":[0,1]}\n')
    code, out, _ = harness(capsys, "check", path, "--workload", "log")
    assert (code, "completes a send that it never invoked" in out) == (2, True)


@pytest.mark.parametrize("bug", [None, Bug.DUPLICATE])
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_a_simulated_run_s_history_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bug: Bug | None, suffix: str
) -> None:
    record, sim = simulate(1, bug, strikes_at=())
    path = tmp_path / f"run.{suffix}"
    if suffix == "jsonl":
        write_jsonl(record.history, path)
    else:
        write_op_table([("run", list(record.history))], path)
    code, out, _ = harness(capsys, "check", path, "--workload", "log")
    assert (code, "duplicated" in out) == ((1, True) if bug else (0, False)), out
    assert bug is None or sim.planted


def test_an_op_table_of_several_histories_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Protects from one verdict about two histories, whose ops stand one behind the other."""
    path = tmp_path / "two.parquet"
    ops = [Op(0, 0, 0, "invoke", "write", "k", 1), Op(1, 1, 0, "ok", "write", "k", 1)]
    write_op_table([("a", ops), ("b", ops)], path)
    code, out, _ = harness(capsys, "check", path)
    assert (code, "an op table of several histories; harness batch --input checks it" in out) == (2, True), out


def test_registers_too_and_no_model_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(
        '{"process":0,"type":"invoke","f":"write","value":1}\n{"process":0,"type":"ok","f":"write","value":1}\n'
    )
    assert harness(capsys, "check", path, "--workload", "register")[0] == 0
    code, _, err = harness(capsys, "check", path, "--workload", "log", "--model", "register")
    assert (code, "exclude each other" in err) == (64, True)


def test_what_speaks_against_a_file_is_said_beside_its_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "torn.jsonl", *GOOD)
    path.write_bytes(path.read_bytes() + b'{"process":0,"ty')
    code, out, _ = harness(capsys, "check", path, "--workload", "log")
    assert code == 0
    assert "  note: the last 16 bytes were torn and are left out" in out.splitlines()


def test_reading_has_the_limit_of_memory_that_all_histories_have(tmp_path: Path) -> None:
    """In a process of its own, whose memory no earlier test has used."""
    path = tmp_path / "nested.jsonl"
    path.write_bytes(b'{"process":0,"type":"invoke","f":"poll","key":"q","value":[' + b"[]," * (4 << 20) + b"[]]}\n")
    argv = [sys.executable, "-m", "harness.cli.main", "check", path, "--workload", "log", "--memory-mb", "64"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "reading it takes more than 64.0 MiB of memory; --memory-mb gives it more" in done.stdout


LEFT_OUT = (
    ("send", 1, [0, 1], {}),
    ("send", 2, [3, 2], {}),
    ("replica-read", 0, [[0, 1], [3, 2]], {"done": True}),
)
NOBODY_READ = (*LEFT_OUT[:2], ("replica-read", 0, [[0, 1]], {"done": True}))


@pytest.mark.parametrize(
    ("calls", "options", "code", "shown"),
    [
        (GOOD, [], 0, "log (implied)"),
        (BAD, [], 1, "log (implied)"),
        (CONSUMED, [], 0, "queue (implied)"),
        (CONSUMED[:-1], [], 2, "queue (implied)"),
        (LEFT_OUT, [], 2, "some offsets hold no known one; --offsets sparse says that the broker leaves offsets out"),
        (LEFT_OUT, ["--offsets", "sparse"], 0, "log (implied)"),
        (NOBODY_READ, ["--offsets", "sparse"], 1, "log (implied)"),
        (LEFT_OUT, ["--offsets", "dense"], 1, "1 hole"),
        (LEFT_OUT, ["--workload", "log"], 1, "if the broker leaves offsets out, as Kafka does, --offsets sparse says"),
        ((*GOOD, ("receive", 0, [[0, 1]], {})), [], 2, "name their workload: --workload log or --workload queue"),
    ],
)
def test_operations_of_messages_imply_their_workload(
    calls: tuple[tuple[str, Any, Any, dict[str, Any]], ...],
    options: list[str],
    code: int,
    shown: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without an option, unless it depends on one what an offset without a message means."""
    found, out, _ = harness(capsys, "check", write(tmp_path / "h.jsonl", *calls), *options)
    assert (found, shown in out) == (code, True), out


def popped(path: Path, *, handle: bool, again: bool, extended: bool = False) -> Path:
    """A message that a group popped and acknowledged, by its handle or without; and popped once more, if `again`."""

    def event(ms: int, type_: str, f: str, value: Any, **extra: Any) -> dict[str, Any]:
        found = {"process": 0, "type": type_, "f": f, "key": "q", "value": value, "time": ms * 10**6}
        return found if f in ("send", "replica-read") else {**found, "extra": {"group": "g", **extra}}

    proof = ["h1"] if handle else None
    events = [
        event(1, "invoke", "send", 1), event(2, "ok", "send", [0, 1]),
        event(3, "invoke", "pop", None, invisible_ms=1000), event(4, "ok", "pop", [["q", 0, 1, "h1", 0]]),
    ]  # fmt: skip
    if extended:
        events += [
            event(5, "invoke", "extend", proof, id=1),
            event(6, "ok", "extend", ["h2"] if handle else None, id=1),
        ]
        proof = ["h2"] if handle else None
    events += [event(10, "invoke", "ack", proof, id=1), event(11, "ok", "ack", None, id=1)]
    if again:
        events += [event(5000, "invoke", "pop", None, invisible_ms=1000)]
        events += [event(5001, "ok", "pop", [["q", 0, 1, "h3", 1]])]
    events += [event(6000, "invoke", "replica-read", 0), event(6001, "ok", "replica-read", [[0, 1]])]
    events[-1]["extra"] = {"done": True}
    path.write_text("".join(json.dumps(one) + "\n" for one in events))
    return path


@pytest.mark.parametrize("extended", [False, True])
@pytest.mark.parametrize("handle", [False, True])
def test_an_acknowledgement_needs_no_handle(
    handle: bool, extended: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Protects those who record an `ack` with the id alone: the judge of leases failed."""
    good = popped(tmp_path / "good.jsonl", handle=handle, again=False, extended=extended)
    _, out, _ = harness(capsys, "check", good)
    assert "  leases              valid     1 messages popped, 1 leases" in out
    bad = popped(tmp_path / "bad.jsonl", handle=handle, again=True, extended=extended)
    code, out, _ = harness(capsys, "check", bad)
    assert (code, "1 acked-redelivered" in out) == (1, True), out


@pytest.mark.parametrize("identity", [{"a": 1}, [1]])
def test_an_id_that_is_no_number_and_no_text_is_refused(
    identity: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = (("send", identity, [0, identity], {}), ("poll", 0, [[0, identity]], {}))
    code, out, _ = harness(capsys, "check", write(tmp_path / "h.jsonl", *calls), "--workload", "log")
    assert (code, "op 0: a send has a positive number as its id, not" in out) == (2, True), out
