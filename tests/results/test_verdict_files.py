from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import any_ops
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.durable import write_text
from results.errors import HistoryError, StoreError
from results.junit import clean, write_junit
from results.verdict import Anomaly, CheckResult, Judgement, Verdict
from results.verdict_file import read_verdict, write_verdict

details = st.dictionaries(any_ops.text, any_ops.values, max_size=2)
anomalies = st.builds(
    Anomaly,
    name=any_ops.text,
    summary=any_ops.text,
    key=st.none() | any_ops.text,
    ops=st.lists(st.integers(), max_size=3).map(tuple),
    window=st.none() | st.tuples(st.integers(), st.integers()),
    details=details,
    legal=st.none() | any_ops.text,
)
results = st.builds(
    CheckResult,
    checker=any_ops.text,
    verdict=st.sampled_from(Verdict),
    reason=any_ops.text,
    anomalies=st.lists(anomalies, max_size=2).map(tuple),
    stats=details,
    ms=st.integers(min_value=0, max_value=10**6).map(float),
)
judgements = st.lists(results, max_size=3).map(lambda found: Judgement(tuple(found)))

SAMPLE = Judgement(
    (
        CheckResult("stats", Verdict.VALID, "fine", ms=3.0),
        CheckResult(
            "linearizability",
            Verdict.INVALID,
            "r1 was \x1b[31mread\x1b[0m stale",
            anomalies=(Anomaly("nonlinearizable", "read 3 <after> 4\x00", "r1"), Anomaly("lost", "m7", legal="async")),
        ),
        CheckResult("convergence", Verdict.UNKNOWN, "n1 did not answer"),
        CheckResult("well-formed", Verdict.HARNESS_FAILURE, "breach"),
    )
)


@settings(max_examples=40)  # each example syncs a file to the disk
@given(judgement=judgements)
def test_a_judgement_comes_back(tmp_path_factory: pytest.TempPathFactory, judgement: Judgement) -> None:
    path = tmp_path_factory.mktemp("verdict") / "verdict.json"
    write_verdict(judgement, path)
    assert read_verdict(path) == judgement
    assert json.loads(path.read_text("utf-8"))["verdict"] == judgement.verdict.value


def test_the_file_reads_well(tmp_path: Path) -> None:
    write_verdict(SAMPLE, tmp_path / "v")
    data = json.loads((tmp_path / "v").read_text())
    assert list(data) == ["verdict", "reason", "results"]
    assert data["verdict"] == "invalid"
    assert data["results"][1]["anomalies"][0]["key"] == "r1"


def test_no_verdict_is_lost_to_an_odd_detail(tmp_path: Path) -> None:
    odd = {
        "path": Path("/x"),
        "set": {2, 1},
        "inf": float("inf"),
        3: (1, 2),
        "v": Verdict.VALID,
        "b": b"\xff",
        "s": "\udcff",
    }
    write_verdict(Judgement([CheckResult("c", Verdict.VALID, "ok", stats=odd)]), tmp_path / "v")  # type: ignore[arg-type]
    assert read_verdict(tmp_path / "v").results[0].stats == {
        "path": "/x",
        "set": [1, 2],
        "inf": None,
        "3": [1, 2],
        "v": "valid",
        "b": "b'\\xff'",
        "s": "\udcff",
    }


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"results":[{}]}', '{"results":[{"checker":1,"verdict":"so-so"}]}']
)
def test_what_is_no_verdict_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "v").write_text(text)
    with pytest.raises(HistoryError, match="v: not a verdict") as message:
        read_verdict(tmp_path / "v")
    assert "\n" not in str(message.value)


def test_a_missing_verdict(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="no verdict can be read: No such file"):
        read_verdict(tmp_path / "v")


def test_a_file_that_cannot_be_written_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="the verdict cannot be written: No such file"):
        write_verdict(SAMPLE, tmp_path / "no" / "v")
    (tmp_path / "v").mkdir()
    with pytest.raises(StoreError, match="the plan cannot be written: Is a directory"):
        write_text(tmp_path / "v", "x", "the plan")
    assert [p.name for p in tmp_path.iterdir()] == ["v"]


def test_junit_has_a_case_for_each_checker(tmp_path: Path) -> None:
    write_junit(SAMPLE, tmp_path / "j.xml", suite="register-none", seconds=61.5)
    suite = ET.parse(tmp_path / "j.xml").getroot()
    counts = {name: suite.get(name) for name in ("name", "tests", "failures", "errors", "time")}
    assert counts == {"name": "register-none", "tests": "4", "failures": "1", "errors": "2", "time": "61.500"}
    stats, search, convergence, formed = suite
    assert (stats.get("name"), stats.get("classname"), stats.get("time"), len(stats)) == (
        "stats",
        "register-none",
        "0.003",
        0,
    )
    failure = search[0]
    assert (failure.tag, failure.get("message")) == ("failure", "r1 was [31mread[0m stale")
    assert failure.text == "nonlinearizable (key r1): read 3 <after> 4\nlost: m7 [legal here: async]"
    assert [(case[0].tag, case[0].get("type")) for case in (convergence, formed)] == [
        ("error", "unknown"),
        ("error", "harness-failure"),
    ]


def test_a_run_that_was_not_checked_is_not_green(tmp_path: Path) -> None:
    write_junit(Judgement([]), tmp_path / "j.xml", suite="s")
    suite = ET.parse(tmp_path / "j.xml").getroot()
    assert (suite.get("tests"), suite.get("errors")) == ("1", "1")


def test_many_anomalies_are_counted_not_listed(tmp_path: Path) -> None:
    many = [Anomaly("lost", f"m{i}", legal="async") for i in range(25)]
    write_junit(Judgement([CheckResult("logs", Verdict.VALID, "ok", many)]), tmp_path / "j.xml", suite="s")
    text = ET.parse(tmp_path / "j.xml").getroot()[0][0].text or ""
    assert text.splitlines()[-1] == "and 5 more in verdict.json"
    assert len(text.splitlines()) == 21


@given(st.text(alphabet=st.characters()))
def test_any_text_can_stand_in_xml(text: str) -> None:
    element = ET.Element("x", text=clean(text))
    assert ET.fromstring(ET.tostring(element)).tag == "x"
