# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import any_ops
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.durable import write_text
from results.errors import HistoryError, StoreError
from results.junit import clean, write_junit
from results.verdict import Anomaly, CheckResult, FailOn, Judgement, KnownFinding, Verdict
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
findings = st.builds(
    KnownFinding,
    id=st.integers(0, 10**6),
    title=any_ops.text,
    anomalies=st.dictionaries(any_ops.text, st.integers(0, 10**6), max_size=2),
    page=any_ops.text,
    without=any_ops.text,
)
judgements = st.builds(
    Judgement,
    st.lists(results, max_size=3).map(tuple),
    st.just(()),
    st.none(),
    st.none() | st.dictionaries(any_ops.text, any_ops.text, max_size=2),
) | st.builds(
    Judgement,
    st.lists(results, max_size=3).map(tuple),
    st.lists(findings, max_size=2).map(tuple),
    st.lists(any_ops.text, max_size=2).map(tuple),
)

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


KNOWN = KnownFinding(5, "a cut-off master", {"nonlinearizable": 2}, "docs/findings/05.md", "--mend 5")


def test_the_file_says_what_is_known_and_what_is_new(tmp_path: Path) -> None:
    """Scripts read `known` and `new`; a run that nobody compared with the findings has neither."""
    write_verdict(replace(SAMPLE, known=(KNOWN,), new=("lost",)), tmp_path / "v")
    data = json.loads((tmp_path / "v").read_text())
    assert list(data) == ["verdict", "reason", "known", "new", "results"]
    assert data["known"][0] == {
        "id": 5,
        "title": "a cut-off master",
        "anomalies": {"nonlinearizable": 2},
        "page": "docs/findings/05.md",
        "without": "--mend 5",
    }
    assert data["new"] == ["lost"]


@pytest.mark.parametrize(
    ("new", "left", "code"),
    [(None, Verdict.INVALID, 1), (("nonlinearizable",), Verdict.INVALID, 1), ((), Verdict.HARNESS_FAILURE, 3)],
)
def test_what_known_findings_explain_does_not_decide(new: tuple[str, ...] | None, left: Verdict, code: int) -> None:
    """`--fail-on new` turns nothing else into a success: unknown and a failure of the harness keep their codes."""
    judgement = replace(SAMPLE, known=(KNOWN,), new=new)
    assert judgement.verdict is Verdict.INVALID
    assert (judgement.verdict_beside_known, judgement.exit_code(FailOn.NEW)) == (left, code)
    assert judgement.exit_code(FailOn.ANY) == 1


def test_a_result_without_a_known_anomaly_is_not_known() -> None:
    """An invalid result must have an anomaly, and a finding must explain each; doubt beside it stays doubt."""
    invalid, lost = Verdict.INVALID, Anomaly("nonlinearizable", "so")
    for anomalies, left in (
        ([], invalid),
        ([lost], Verdict.VALID),
        ([lost, Anomaly("lost", "so")], invalid),
        ([lost, Anomaly("lost", "so", legal="async")], Verdict.VALID),
        ([lost, Anomaly("unavailable", "so", doubt="no processor")], Verdict.UNKNOWN),
    ):
        judgement = Judgement([CheckResult("log", invalid, "so", anomalies)], [KNOWN], [])
        assert judgement.verdict_beside_known is left, anomalies


def test_junit_skips_what_is_known(tmp_path: Path) -> None:
    """CI systems show a known finding as skipped, with its page, and what is new as a failure."""
    write_junit(replace(SAMPLE, known=(KNOWN,), new=()), tmp_path / "j.xml", "register-bridge")
    root = ET.parse(tmp_path / "j.xml").getroot()
    assert (root.get("failures"), root.get("skipped"), root.get("errors")) == ("0", "1", "2")
    skipped = root.find(".//skipped")
    assert skipped is not None
    assert skipped.get("message") == "known: finding 5, a cut-off master (docs/findings/05.md)"
    write_junit(replace(SAMPLE, known=(), new=("nonlinearizable",)), tmp_path / "j.xml", "register-bridge")
    root = ET.parse(tmp_path / "j.xml").getroot()
    assert (root.get("failures"), root.get("skipped"), root.get("errors")) == ("1", "0", "2")


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
