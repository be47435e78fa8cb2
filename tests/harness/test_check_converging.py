# SPDX-License-Identifier: Apache-2.0
"""`harness check` on sets and counters that converge: Maelstrom's files without an option, and marks in other forms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cli.main import cli, guarded

BROADCAST = """\
{:index 0, :time 10, :process 0, :type :invoke, :f :broadcast, :value 0}
{:index 1, :time 20, :process 0, :type :ok, :f :broadcast, :value 0}
{:index 2, :time 30, :process 1, :type :invoke, :f :read, :value nil}
{:index 3, :time 40, :process 1, :type :ok, :f :read, :value []}
{:index 4, :time 50, :process :nemesis, :type :info, :f :start-partition, :value :majority}
{:index 5, :time 51, :process :nemesis, :type :info, :f :start-partition, :value [:isolated {"n1" #{"n2"}}]}
{:index 6, :time 60, :process 1, :type :invoke, :f :broadcast, :value 1}
{:index 7, :time 70, :process 1, :type :info, :f :broadcast, :value 1, :error :net-timeout}
{:index 8, :time 80, :process :nemesis, :type :info, :f :stop-partition, :value nil}
{:index 9, :time 81, :process :nemesis, :type :info, :f :stop-partition, :value :network-healed}
{:index 10, :time 10000000090, :process 0, :type :invoke, :f :read, :value nil, :final? true}
{:index 11, :time 10000000091, :process 0, :type :ok, :f :read, :value [1 0], :final? true}
{:index 12, :time 10000000092, :process 6, :type :invoke, :f :read, :value nil, :final? true}
{:index 13, :time 10000000093, :process 6, :type :ok, :f :read, :value [0 1], :final? true}
"""
COUNTER = BROADCAST.replace(":broadcast, :value 0", ":add, :value 3").replace(":broadcast, :value 1", ":add, :value -1")
COUNTER = COUNTER.replace("[]", "0").replace("[1 0]", "2").replace("[0 1]", "2")
G_SET = BROADCAST.replace(":broadcast", ":add").replace(", :final? true", "")
TABLE = """\
client,op,value,start,end,final
a,add,1,1,2,
b,read,[],3,4,
a,read,[1],5,6,true
"""
EVENTS = "".join(
    json.dumps({"client": "a", "type": type_, "op": f, "value": value, **more}) + "\n"
    for type_, f, value, more in (
        ("invoke", "add", 1, {}), ("ok", "add", 1, {}), ("invoke", "read", None, {"final?": True}),
        ("ok", "read", [1], {"final?": True}),
    )
)  # fmt: skip
FAILED = EVENTS.replace('"ok", "op": "add"', '"fail", "op": "add"').replace("[1]", "[]")


def harness(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> tuple[int, list[str]]:
    code = guarded(lambda: cli.main([str(a) for a in argv], prog_name="harness", standalone_mode=False))
    output = capsys.readouterr()
    return code, (output.out + output.err).splitlines()


SET, COUNT = ["--model", "converging-set"], ["--model", "converging-counter"]


@pytest.mark.parametrize(
    ("text", "options", "code", "said"),
    [
        (BROADCAST, [], 0, "converging-set (implied)"),
        (BROADCAST.replace("[0 1]", "[1]"), [], 1, "element 0 was added (op 0) and is not in 1 of 2 final reads"),
        (BROADCAST.replace("[0 1]", "[0]"), [], 2, "1 elements of adds of unknown outcome are in some final reads"),
        (BROADCAST.replace("[0 1]", "[0 1 7]"), [], 1, "element 7 was read (op 12), but no add of it"),
        (BROADCAST.replace(":info, :f :broadcast", ":fail, :f :broadcast"), [], 1, "element 1 was read (op 10), but"),
        (BROADCAST.replace(", :final? true", ""), [], 0, "converging-set (implied)"),
        (BROADCAST.replace(", :final? true", "").replace("1000000009", "9"), [], 2, "no final reads: no read is"),
        (COUNTER, [], 0, "converging-counter (implied)"),
        (COUNTER.replace(":value 2", ":value 3"), [], 0, "converging-counter (implied)"),
        (COUNTER.replace(":value 2", ":value 1"), [], 1, "the final read 1 (op 10 of process 0) is not 3, the"),
        (COUNTER.replace(":value 2", ":value 6"), [], 1, "all adds until then make at most 3"),
        (G_SET, [], 2, "no model is implied by add, read; name one with --model (converging-counter, converging-s"),
        (G_SET, SET, 0, "converging-set "),
        (G_SET.replace("[0 1]", "[1]"), SET, 1, "element 0 was added (op 0) and is not in 1 of 2 final reads"),
        (TABLE, [], 0, "converging-set (implied)"),
        (TABLE.replace("[1]", "[]"), [], 1, "is not in the final read"),
        (EVENTS, [], 0, "converging-set (implied)"),
        (EVENTS.replace("[1]", "[]"), [], 1, "is not in the final read"),
        (EVENTS.replace("[1]", "1"), SET, 2, "the result of a read (op 2) is the list of all elements, not 1"),
        (EVENTS, COUNT, 2, "the result of a read (op 2) is a whole number, not [1]"),
        (EVENTS.replace("add", "remove"), SET, 2, "the model converging-set has no `remove` (op 0); --ignore remove"),
        (EVENTS, [*SET, "--initial", "3"], 64, "the model converging-set has no start value"),
        (EVENTS.replace('"ok"', '"info"'), SET, 2, "nothing checked: none of 2 ops is known to have happened"),
        (FAILED, SET, 2, "nothing checked: no add is known to have happened"),
    ],
)  # fmt: skip
def test_the_verdict_is_the_right_one(
    text: str, options: list[str], code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "history"
    path.write_text(text)
    found, lines = harness(capsys, "check", path, *options)
    assert (found, said in lines[0]) == (code, True), lines


def test_each_violation_has_a_line_and_its_ops(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "h.edn").write_text(BROADCAST.replace("[0 1]", "[1 5 6]"))
    code, lines = harness(capsys, "check", tmp_path / "h.edn", "--json", tmp_path / "out.json")
    assert code == 1
    assert lines[0].endswith("element 5 was read (op 12), but no add of it is in the history (3 such cases)")
    assert [line.split()[1] for line in lines[1:4]] == ["never-added:", "never-added:", "lost-element:"]
    found = json.loads((tmp_path / "out.json").read_text())
    assert (found["anomaly"], found["failing_op"], found["core"]) == ("never-added", 12, [12])


def test_a_list_of_verdicts_may_name_such_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "h.edn").write_text(G_SET)
    (tmp_path / "list.csv").write_text("file,model,verdict\nh.edn,converging-set,valid\n")
    assert harness(capsys, "check", tmp_path, "--models", tmp_path / "list.csv")[0] == 0


def test_a_batch_refuses_such_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "h.edn").write_text(BROADCAST)
    code, lines = harness(capsys, "batch", "--input", tmp_path, "--output", tmp_path / "out", *SET)
    assert (code, "a batch does not judge 'converging-set'; harness check --model" in lines[-1]) == (64, True), lines
