# SPDX-License-Identifier: Apache-2.0
"""`harness check` on histories from elsewhere: its lines, its lists, its pictures, its exit codes."""

from __future__ import annotations

import json
import os
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from checkers.linearizability import CasRegister, Linearizable, encode, verify_witness
from harness.check import history_options
from harness.check.offline import check_paths
from harness.check.report import CheckOptions
from results.formats import FORMATS, read_history, write_jsonl
from results.history import History
from results.op import Op
from results.store import RunDir, Store
from tests.commands import harness_lines as harness

PORCUPINE = Path(__file__).parent.parent / "data" / "porcupine"


def write(path: Path, *ops: tuple[int, str, str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ({"process": p, "type": type_, "f": f, "value": value} for p, type_, f, value in ops)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def did(f: str, argument: Any, result: Any = None) -> list[tuple[int, str, str, Any]]:
    return [(0, "invoke", f, argument), (0, "ok", f, argument if result is None else result)]


GOOD = [*did("write", 1), *did("read", None, 1)]
BAD = [*did("write", 4), *did("write", 2), *did("read", None, 4)]


def objects(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_for_each_history_and_the_worst_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a.jsonl", *GOOD)
    write(tmp_path / "deep/bad.jsonl", *BAD)
    (tmp_path / "README.md").write_text("not a history")
    code, lines, _ = harness(capsys, "check", tmp_path)
    assert code == 1
    assert [re.sub(r" +\d+ ms", "     N ms", line) for line in lines] == [
        "a.jsonl          valid    cas-register (implied)      4 ops     N ms  unique-value register",
        "deep/bad.jsonl   invalid  cas-register (implied)      6 ops     N ms  unique-value register  op 4: read 4 "
        "cannot be placed: the register could only be 2 at that time; write 4 (op 0) "
        "had been overwritten by write 2 (op 2)",
        "2 histories: 1 valid, 1 invalid",
    ]


def test_json_has_one_object_a_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a.jsonl", *GOOD)
    write(tmp_path / "b.jsonl", *BAD)
    (tmp_path / "c.jsonl").write_text("nonsense\n")
    harness(capsys, "check", tmp_path, "--model", "register", "--json", tmp_path / "out.json")
    good, bad, broken = objects(tmp_path / "out.json")
    fields = "file model verdict reason ops ms algorithm anomaly failing_op core core_starts_anywhere states"
    assert all(set(fields.split()) <= set(one) for one in (good, bad, broken))
    assert (good["file"], good["model"], good["verdict"], good["ops"]) == ("a.jsonl", "register", "valid", 4)
    assert (bad["anomaly"], bad["failing_op"], bad["core"], bad["states"]) == ("nonlinearizable", 4, [0, 2, 4], ["2"])
    assert bad["ms"] > 0
    assert (broken["verdict"], broken["anomaly"], broken["core"]) == ("unknown", None, [])
    assert "c.jsonl:1: " in broken["reason"]


def test_json_tells_where_a_core_leaves_the_past_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ten writes of the value that was read: none of them comes back, but to say so takes all of them, or no past."""
    write(tmp_path / "a.jsonl", *BAD)
    write(tmp_path / "b.jsonl", *did("write", 1) * 10, *did("write", 2), *did("read", None, 1))
    harness(capsys, "check", tmp_path, "--model", "register", "--json", tmp_path / "out.json")
    text = [(one["core"], one["core_starts_anywhere"]) for one in objects(tmp_path / "out.json")]
    assert text == [([0, 2, 4], False), ([20, 22], True)]


def test_a_history_that_cannot_be_read_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cut.edn").write_text("[{:process 0, :type :invoke, :f :read}\n {:process 0")
    (tmp_path / "empty.log").write_text("")
    write(tmp_path / "good.jsonl", *GOOD)
    write(tmp_path / "which.jsonl", *did("enqueue", 1))
    code, lines, err = harness(capsys, "check", tmp_path)
    assert (code, err, len(lines)) == (2, "", 5)
    assert re.fullmatch(r"cut.edn       unknown  .*/cut.edn:2: '\{' is never closed", lines[0])
    assert "empty.log: the file is empty" in lines[1]
    assert lines[2].startswith("good.jsonl    valid ")
    assert (
        "which.jsonl: no model is implied by enqueue; name one with --model (fifo-queue, unordered-queue)" in lines[3]
    )


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "a.jsonl",
            '{"process":0,"type":"invoke","f":"write","value":%s}\n',
            "a.jsonl:2: its value is nested too deeply",
        ),
        (
            "a.edn",
            "{:process 0 :type :invoke :f :write :value %s}\n",
            "a.edn:2: a value that is nested more than 200 deep",
        ),
    ],
)
def test_bottomless_values_are_one_line(
    name: str, text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text % 1 + text % ("[" * 100_000 + "]" * 100_000))
    code, lines, _ = harness(capsys, "check", tmp_path / name)
    assert (code, len(lines)) == (2, 1)
    assert said in lines[0]
    (tmp_path / "b.jsonl").write_text(
        "".join(
            json.dumps({"process": 0, "type": t, "f": "write", "value": 1}).replace("1}", "[" * 700 + "]" * 700 + "}")
            + "\n"
            for t in ("invoke", "ok")
        )
    )
    code, lines, _ = harness(capsys, "check", tmp_path / "b.jsonl")
    assert (code, len(lines)) == (2, 1)
    assert "b.jsonl" in lines[0]
    assert "its value is nested too deeply" in lines[0]


def test_verdicts_that_are_as_listed_end_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also those that are listed as invalid."""
    code, lines, _ = harness(capsys, "check", PORCUPINE, "--models", PORCUPINE / "verdicts.csv")
    assert code == 0, lines
    assert re.fullmatch(r"14 histories: \d+ valid, \d+ invalid; 14 of 14 as listed", lines[-1])


@pytest.mark.skipif("HARNESS_HISTORIES" not in os.environ, reason="HARNESS_HISTORIES names no further histories")
def test_further_histories_are_as_listed(capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(os.environ["HARNESS_HISTORIES"])
    code, lines, _ = harness(capsys, "check", folder, "--models", folder / "verdicts.csv")
    assert code == 0, lines[-9:]


def test_every_disagreement_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a.jsonl", *GOOD)
    write(tmp_path / "b.jsonl", *BAD)
    write(tmp_path / "locks.history", *did("acquire", None), *did("release", None))
    write(tmp_path / "other.jsonl", *GOOD)
    listed = tmp_path / "listed.csv"
    listed.write_text(
        "file,model,verdict\na.jsonl,register,invalid\nb.jsonl,cas-register,valid\nlocks.history,mutex,valid\n"
        "gone.edn,kv,valid\n"
    )
    code, lines, _ = harness(capsys, "check", tmp_path, "--models", listed)
    assert code == 1
    assert lines[2].startswith("locks.history   valid    mutex ")
    assert lines[4:7] == [
        "gone.edn        unknown  it is listed, but there is no such file",
        "2 verdicts differ from the list:",
        "  a.jsonl: listed invalid, found valid: 1 key, 2 ops",
    ]
    assert lines[7].startswith("  b.jsonl: listed valid, found invalid: op 4: read 4 cannot be placed")
    assert lines[8] == "5 histories: 3 valid, 1 invalid, 1 unknown; 1 of 3 as listed"


def test_without_a_listed_verdict_the_list_only_names_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "q.jsonl", *did("enqueue", 1), *did("enqueue", 2), *did("dequeue", None, 2))
    (tmp_path / "m.csv").write_text("file,model\nq.jsonl,unordered-queue\n")
    code, lines, _ = harness(capsys, "check", tmp_path, "--models", tmp_path / "m.csv")
    assert (code, len(lines)) == (0, 1)
    (tmp_path / "m.csv").write_text("file,model\nq.jsonl,fifo-queue\n")
    code, lines, _ = harness(capsys, "check", tmp_path, "--models", tmp_path / "m.csv")
    assert (code, "dequeue -> 2 cannot be placed" in lines[0]) == (1, True)


def test_nothing_to_check_is_unknown_and_no_objection_to_valid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "n.edn").write_text("[{:process :nemesis, :type :info, :f :kill, :value nil}]")
    code, lines, _ = harness(capsys, "check", tmp_path, "--model", "register")
    assert (code, lines[0]) == (2, "n.edn   unknown  nothing checked: no client did anything in this history")
    for verdict, expected in (("valid", 0), ("invalid", 1)):
        (tmp_path / "m.csv").write_text(f"file,model,verdict\nn.edn,register,{verdict}\n")
        assert harness(capsys, "check", tmp_path, "--models", tmp_path / "m.csv")[0] == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name,model\n", "m.csv:1: no column 'file'; the columns are file,model and, optionally, verdict"),
        ("file,model\na.jsonl,registr\n", "m.csv:2: no model 'registr'; did you mean 'register'?"),
        ("file,model,verdict\na.jsonl,kv,vaild\n", "m.csv:2: no verdict 'vaild'; did you mean 'valid'?"),
        ("file,model\n,kv\n", "m.csv:2: no file is named"),
        (None, "m.csv: cannot be read: No such file"),
        ("file,\0\xff", "m.csv: "),
    ],
)
def test_a_list_that_is_none_is_told(
    text: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "a.jsonl", *GOOD)
    if text is not None:
        (tmp_path / "m.csv").write_bytes(text.encode("latin-1"))
    code, _, err = harness(capsys, "check", tmp_path, "--models", tmp_path / "m.csv")
    assert code == 64
    assert said in err
    assert len(err.splitlines()) == 1


def test_a_picture_of_each_violation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "a/bad.jsonl", *BAD)
    write(tmp_path / "a/worse.jsonl", *BAD, *BAD)
    page = tmp_path / "out.html"
    code, lines, _ = harness(capsys, "check", tmp_path / "a", "--explain", page)
    assert code == 1
    assert [line for line in lines if "picture" in line] == [f"  picture: {page}", f"  picture: {tmp_path}/out-2.html"]
    assert "read 4 cannot be placed" in page.read_text()
    write(tmp_path / "b/good.jsonl", *GOOD)
    code, lines, _ = harness(capsys, "check", tmp_path / "b", "--explain", tmp_path / "none.html")
    assert (code, lines[-1]) == (0, f"no violation of a model was found, so {tmp_path}/none.html was not written")
    assert not (tmp_path / "none.html").exists()


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = write(tmp_path / "bad.jsonl", *BAD)
    for option in ("--json", "--explain"):
        code, _, err = harness(capsys, "check", bad, option, tmp_path / "no/such/folder")
        assert (code, len(err.splitlines())) == (3, 1)
        assert "cannot be written: No such file or directory" in err


def test_the_witness_explains_the_history(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    code, lines, _ = harness(capsys, "check", PORCUPINE / "etcd_002.log", "--witness", "--json", out)
    assert code == 0
    (found,) = objects(out)
    ((key, order),) = [(w["key"], w["ops"]) for w in found["witness"]]
    problem = encode(read_history(PORCUPINE / "etcd_002.log").history.calls, CasRegister())
    assert key is None
    assert verify_witness(problem, [problem.source.index(index) for index in order]) is None
    assert lines[-1].startswith("  order: " + " ".join(map(str, order[:5])))


def storm(path: Path) -> Path:
    """Forty elements, eight of a sort, are enqueued at a time and in any order; then nine of one sort come out."""
    both = [[(p, type_, "enqueue", p % 5) for p in range(40)] for type_ in ("invoke", "ok")]
    return write(path, *both[0], *both[1], *(event for _ in range(9) for event in did("dequeue", None, 0)))


def test_budgets_are_work_and_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = storm(tmp_path / "storm.jsonl")
    code, lines, _ = harness(capsys, "check", path, "--model", "fifo-queue", "--budget-s", "0.004", "--no-jit")
    assert code == 2
    found = re.search(r"undecided after ([\d,]+) steps", lines[0])
    assert found is not None
    assert 4_000 <= int(found[1].replace(",", "")) <= 4_200
    code, lines, _ = harness(capsys, "check", path, "--model", "fifo-queue", "--memory-mb", "1", "--no-jit")
    assert code == 2
    assert "it needs more than 1 MiB" in lines[0]


def told(lines: list[str]) -> list[str]:
    return [re.sub(r" +\d+ ms", "", line) for line in lines]


def test_several_processes_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    one = harness(capsys, "check", PORCUPINE, "--no-jit")
    two = harness(capsys, "check", PORCUPINE, "--no-jit", "--jobs", "2")
    assert told(two[1]) == told(one[1])
    assert len([line for line in one[1] if not line.startswith("  note: ")]) == 15
    assert "HARNESS_NO_JIT" not in os.environ


def test_without_the_compiler_the_verdicts_are_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verdicts = []
    for options in ([], ["--no-jit"]):
        harness(capsys, "check", PORCUPINE, *options, "--json", tmp_path / "out.jsonl")
        verdicts.append([(o["file"], o["verdict"], o["failing_op"]) for o in objects(tmp_path / "out.jsonl")])
    assert verdicts[0] == verdicts[1]


class Deadly:
    """Ends the process that unpickles it, as the kernel does when the memory is gone."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (9,)


def test_a_process_that_is_killed_is_no_end_of_the_check(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.jsonl", *GOOD)
    output: list[str] = []
    code = check_paths([tmp_path], output.append, CheckOptions(format=Deadly()), jobs=2)  # type: ignore[arg-type]
    assert code == 2
    assert "a.jsonl: the process that checked it was killed" in output[0]
    assert output[2] == "2 histories: 2 unknown"


def test_a_bug_in_the_checker_is_one_line_and_the_others_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.jsonl", *GOOD, *GOOD)
    write(tmp_path / "b.jsonl", *GOOD)
    sound = Linearizable.examine

    def broken(self: Linearizable, history: History) -> Any:
        if len(history) == 8:
            raise ZeroDivisionError("division\nby zero")
        return sound(self, history)

    monkeypatch.setattr(Linearizable, "examine", broken)
    code, lines, err = harness(capsys, "check", tmp_path, "--json", tmp_path / "out.json")
    assert (code, err) == (2, "")
    assert lines[0].endswith("the check itself failed (ZeroDivisionError: division by zero): a bug, please report")
    assert lines[1].startswith("b.jsonl   valid ")
    assert any("in broken" in line for line in objects(tmp_path / "out.json")[0]["notes"])


def test_stored_runs_and_histories_in_one_folder_are_both_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file in a run's folder belongs to the run; a link to a run is no second one."""
    write(tmp_path / "a.jsonl", *GOOD)
    write(tmp_path / "run/journal.jsonl", *GOOD)
    (tmp_path / "run/plan.toml").write_text('workload = "register"\nseed = 1\n')
    (tmp_path / "latest").symlink_to(tmp_path / "run")
    _, lines, _ = harness(capsys, "check", tmp_path, "--model", "register")
    assert [line.split()[0] for line in lines if line[:1].isalpha()] == ["a.jsonl", "run"]
    assert lines[-1].startswith("2 histories: ")


def test_what_a_dialect_means_can_be_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused = write(tmp_path / "cas.jsonl", *did("write", 1), (0, "invoke", "cas", [1, 2]), (0, "fail", "cas", [1, 2]))
    assert harness(capsys, "check", refused)[0] == 0
    assert harness(capsys, "check", refused, "--failed-cas", "observed")[0] == 1
    lost = write(tmp_path / "nil.jsonl", *did("write", 1), (0, "invoke", "read", None), (0, "ok", "read", None))
    assert harness(capsys, "check", lost)[0] == 1
    assert harness(capsys, "check", lost, "--nil-reads", "unrecorded")[0] == 0


def test_a_log_is_read_with_its_offsets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = [*did("append", "x", 0), *did("append", "y", 1), *did("read", 1, "y"), *did("max-offset", None, 2)]
    assert harness(capsys, "check", write(tmp_path / "good.jsonl", *log))[0] == 0
    code, lines, _ = harness(capsys, "check", write(tmp_path / "bad.jsonl", *log, *did("read", 0, "y")))
    assert code == 1
    assert "op 8: read at 0 -> 'y' cannot be placed" in lines[0]


def test_formats_are_those_that_there_are() -> None:
    assert ("auto", *FORMATS) == history_options.FORMATS


def stored(store: Path, minute: int) -> RunDir:
    plan = 'workload = "register"\n[cluster]\nbackend = "docker"\n'
    run = Store(store).create("register-none", plan, datetime(2026, 11, 21, 12, minute))
    write_jsonl([Op(0, 1, 0, "invoke", "read", "k"), Op(1, 2, 0, "ok", "read", "k")], run.journal)
    return run


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ("workload = 5", "workload is 5; a value of type str is right"),
        ('workload = "no-such"', "no workload 'no-such'"),
        ("a = " + "[" * 900, "nested too deeply"),
        ("rate = " + "9" * 400, "rate is inf"),
    ],
)
def test_one_bad_run_does_not_stop_the_others(
    plan: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, good = stored(tmp_path, 1), stored(tmp_path, 2)
    bad.plan.write_text(plan)
    code, out, err = harness(capsys, "check", tmp_path)
    assert (code, err) == (2, "")
    assert said in next(line for line in out if bad.path.name in line)
    assert any(good.path.name in line for line in out)
    assert good.verdict.exists()
    assert out[-1].startswith("2 histories: 2 unknown")


def test_a_run_whose_verdict_cannot_be_stored_is_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = stored(tmp_path, 1), stored(tmp_path, 2)
    first.verdict.mkdir()
    code, out, err = harness(capsys, "check", tmp_path)
    assert (code, err) == (2, "")
    [note] = [line for line in out if line.startswith("  note: ")]
    assert note.startswith("  note: the verdict counts, but it could not be stored: ")
    assert note.endswith("verdict.json: the verdict cannot be written: Is a directory")
    assert any(line.startswith("  linearizability") for line in out)
    assert second.verdict.exists()


def test_what_speaks_against_a_file_is_said_beside_its_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ops = [Op(0, 50, 0, "invoke", "write", "k", 1), Op(1, 20, 0, "ok", "write", "k", 1)]
    back = tmp_path / "back.jsonl"
    back.write_text("".join(json.dumps(op.to_json()) + "\n" for op in ops))
    torn = tmp_path / "torn.jsonl"
    write_jsonl([ops[0]], torn)
    torn.write_bytes(torn.read_bytes() + b'{"index":1,"ti')
    run = stored(tmp_path, 1)
    run.journal.write_bytes(run.journal.read_bytes()[:-5])
    _, out, _ = harness(capsys, "check", tmp_path, "--model", "register")
    notes = [line.removeprefix("  note: ") for line in out if line.startswith("  note: ")]
    assert sorted(notes) == [
        "1 events were earlier than the event above them; they get its time (--order time sorts them)",
        "the last 14 bytes were torn and are left out",
        f"the last {len(run.journal.read_bytes().splitlines()[-1])} bytes were torn and are left out",
    ]


def test_pack_leaves_out_what_cannot_be_packed_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "good.jsonl", *did("write", 1))
    odd = {"nan": '"value":NaN', "inf": '"value":1e999', "extra": '"extra":"x"', "time": '"time":' + "9" * 40}
    for name, text in odd.items():
        (tmp_path / f"{name}.jsonl").write_text(f'{{"process":0,"type":"invoke","f":"write",{text}}}\n')
    (tmp_path / "process.jsonl").write_text(f'{{"process":{2**63},"type":"invoke","f":"read"}}\n')
    code, out, err = harness(capsys, "batch", "--input", tmp_path, "--pack", tmp_path / "t.parquet")
    assert (code, err) == (2, "")
    assert out[-1].endswith("2 histories; 4 could not be read")
    assert len(out) == 5
    assert not [line for line in out if "report" in line]
