# SPDX-License-Identifier: Apache-2.0
"""Known or new: the findings that a run shows, in the verdict of a run and of every command that shows one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sim.rig import prepared
from sim.service import Bug

from harness import terminal
from harness.check.summary import Outcome, check_lines, known_lines, summary
from harness.cli.main import cli, guarded
from harness.findings import known
from harness.findings.known import explain
from harness.findings.record import Finding, Measured, read_findings
from harness.findings.signature import Sight, Signature
from harness.plan.plan import ClusterPlan, NemesisPlan, Plan
from harness.run import lifecycle
from harness.run.virtual_time import VirtualTimeLoop
from results.deployment import DeploymentRecord, ServerRecord
from results.figures import SECOND
from results.history import History
from results.op import Op
from results.record import RunRecord
from results.report import render
from results.sealed import seal
from results.store import RunDir, Store
from results.verdict import Anomaly, CheckResult, Excuse, Judgement, KnownFinding, Verdict
from results.verdict_file import read_verdict, write_verdict
from results.web import create_app


def finding(number: int, *anomalies: str, version: str = "5.5.0", **more: Any) -> Finding:
    signature = more.pop("signature", None) or Signature(anomalies)
    return Finding(
        number, "x", "it loses", "here", "--x", signature=signature, measured=[Measured(1, 1, version=version)], **more
    )


def run_of(logs: Sequence[Path] = (), **more: Any) -> RunRecord:
    deployment = DeploymentRecord("controller", servers=(ServerRecord("n1", "broker", version="5.5.0"),))
    history = History([Op(0, 0, -1, "invoke", "inject", {"fault": "f", "id": 1})])
    return RunRecord(history, deployment=deployment, logs={"n1": logs}, **more)


def explained(findings: Sequence[Finding], *anomalies: Anomaly, **more: Any) -> Judgement:
    judgement = Judgement([CheckResult("log", Verdict.INVALID, "so", anomalies)])
    return explain(run_of(**more), judgement, findings)


def ids(judgement: Judgement) -> tuple[list[int], list[str]]:
    return [found.id for found in judgement.known], list(judgement.new or ())


@pytest.mark.parametrize(
    ("plan", "found"),
    [
        ({}, []),
        ({"nemesis": [{"fault": "rolling-upgrade", "to": ["5.2.0", "5.5.0"], "every": "9s", "for": "5s"}]}, [1]),
        ({"nemesis": [{"fault": "rolling-restart", "every": "9s", "for": "5s"}]}, []),
        ({"nemesis": [{"fault": "of-somebody-else", "every": "9s", "for": "5s"}]}, []),
    ],
)
def test_a_version_that_an_upgrade_installs_counts(plan: Mapping[str, Any], found: list[int]) -> None:
    """The defects of a newer version showed during an upgrade to it, and each was called new."""
    lost = Anomaly("lost", "one message")
    judgement = explained([finding(1, "lost", version="5.2.0")], lost, plan={"workload": "log", **plan} if plan else {})
    assert ids(judgement)[0] == found


# What a finding explains.


def test_a_finding_explains_the_anomalies_that_say_what_it_says() -> None:
    """Another thread that spins is new, although its anomaly has the same name."""
    spins = finding(7, signature=Signature(("spinning-thread",), says=re.compile("ReputMess")))
    mine, other = Anomaly("spinning-thread", "ReputMess of n1"), Anomaly("spinning-thread", "TimerFlush of n1")
    assert ids(explained([spins], mine)) == ([7], [])
    assert ids(explained([spins], mine, other)) == ([7], ["spinning-thread"])


def test_a_finding_explains_the_anomalies_in_whose_time_its_line_stands(tmp_path: Path) -> None:
    """A second silence, of which the log says nothing, is new."""
    log = tmp_path / "broker.log"
    log.write_text("2026-11-21 06:12:46,000 WARN refused\n")
    started = {"started_at": "2026-11-21T06:12:44+00:00"}
    refused = finding(25, signature=Signature(("unavailable",), log=re.compile("refused"), during=True))
    mine = Anomaly("unavailable", "so", window=(SECOND, 3 * SECOND))
    other = Anomaly("unavailable", "so", window=(50 * SECOND, 60 * SECOND))
    assert ids(explained([refused], mine, logs=[log], environment=started)) == ([25], [])
    assert ids(explained([refused], mine, other, logs=[log], environment=started)) == ([25], ["unavailable"])


def test_a_line_may_have_to_stand_at_the_node_that_stayed_behind(tmp_path: Path) -> None:
    """A replica that hangs does not explain another one that stayed behind; a thread that ended does not hang."""
    hangs = tmp_path / "broker.log"
    hangs.write_text(
        "2026-11-21 06:12:46,000 INFO shutdown thread[ReputMessageService] interrupt=false\n"
        "2026-11-21 06:13:46,000 INFO later\n"
    )
    ended = tmp_path / "other.log"
    ended.write_text(
        "2026-11-21 06:12:46,000 INFO shutdown thread[ReputMessageService] interrupt=false\n"
        "2026-11-21 06:12:46,900 INFO join thread[ReputMessageService], elapsed time: 900ms, join time:90000ms\n"
        "2026-11-21 06:13:46,000 INFO later\n"
    )
    seven = next(one for one in read_findings() if one.id == 7)
    behind = Anomaly("replica-left-behind", "n1 lacks 82 messages", details={"node": "n1"})
    started = {"started_at": "2026-11-21T06:12:44+00:00"}
    nodes = {"n1": "5.3.3", "n2": "5.3.3"}
    deployment = DeploymentRecord(
        "controller", servers=tuple(ServerRecord(n, "broker", version=v) for n, v in nodes.items())
    )
    for logs, found in (
        ({"n1": [hangs], "n2": [ended]}, ([7], [])),
        ({"n1": [ended], "n2": [hangs]}, ([], ["replica-left-behind"])),
        ({"n1": [], "n2": []}, ([], ["replica-left-behind"])),
    ):
        run = replace(run_of(environment=started), deployment=deployment, logs=logs)
        judgement = Judgement([CheckResult("replicas", Verdict.INVALID, "so", [behind])])
        assert ids(explain(run, judgement, [seven])) == found


def test_either_of_two_signatures_is_enough(tmp_path: Path) -> None:
    """Each explains its own anomalies only: the second one may need a fault that no run had."""
    hung, spins = Anomaly("replica-left-behind", "n1"), Anomaly("spinning-thread", "ReputMess of n1")
    either = Signature(("replica-left-behind",), other=Signature(("spinning-thread",), says=re.compile("Reput")))
    assert either.names == {"replica-left-behind", "spinning-thread"}
    assert ids(explained([finding(7, signature=either)], hung, spins)) == ([7], [])
    assert ids(explained([finding(7, signature=either)], spins)) == ([7], [])
    assert either.other is not None
    needy = replace(either, other=replace(either.other, after=("down",)))
    assert ids(explained([finding(7, signature=needy)], hung, spins)) == ([7], ["spinning-thread"])
    judgement = Judgement([CheckResult("threads", Verdict.INVALID, "so", [spins])])
    assert either.look(run_of(), judgement).sight == Sight.SHOWN
    assert needy.look(run_of(), judgement).sight == Sight.NOT_SHOWN


def test_what_members_pop_is_not_sent_back(tmp_path: Path) -> None:
    """A run with gRPC clients was explained by finding 72, about messages that clients send back: they send none."""
    log = tmp_path / "broker.log"
    log.write_text(
        "2026-11-30 14:52:00.403 ERROR PopReviveService_1 - reviveQueueId=1, revive error, msg is: Message\n"
        "2026-11-30 14:52:13.030 INFO AutoSwitchHAClient RocketmqStore - truncate dirty files to 1097557\n"
    )
    both = [
        replace(one, signature=replace(one.signature, after=()))
        for one in read_findings()
        if one.id in (11, 72) and one.signature
    ]
    popped = Anomaly("retry-lost", "5 messages were popped, failed, and did not come again in time: message 31")
    sent = Anomaly("retry-lost", "1,003 messages failed and did not come again in time: message 672")
    assert ids(explained(both, popped, logs=[log])) == ([11], [])
    assert ids(explained(both, sent, logs=[log])) == ([72], [])
    log.write_text("")
    assert ids(explained(both, popped, sent, logs=[log])) == ([], ["retry-lost"])


def test_known_findings_count_what_they_explain() -> None:
    """Each finding has the cases of its own anomalies, and of those that it brings and no finding has as its own."""
    five, eight = finding(5, "lost", brings=("hole", "dirty-read")), finding(8, "dirty-read")
    found = explained(
        [five, eight],
        Anomaly("lost", "so", details={"count": 1667}),
        Anomaly("dirty-read", "so"),
        Anomaly("hole", "so"),
    )
    assert [dict(one.anomalies) for one in found.known] == [{"lost": 1667, "hole": 1}, {"dirty-read": 1}]
    assert found.known[0].describe() == "it loses: 1,667 lost, 1 hole"
    assert found.known[0].page == "docs/findings/05-x.md"


def test_own_jars_have_only_findings_of_unchanged_classes() -> None:
    """A defect that a patch may have mended is not called known; the rest of the record still holds."""
    changed = {"environment": {"changed_classes": "org.apache.rocketmq.store.ha.autoswitch.AutoSwitchHAService"}}
    lost = Anomaly("lost", "so")
    named = finding(900, "lost", cause="AutoSwitchHAService.removeConnection, CommitLog.append")
    assert named.touches == {"AutoSwitchHAService", "CommitLog"}
    assert ids(explained([named], lost, **changed)) == ([], ["lost"])
    assert ids(explained([named], lost)) == ([900], [])
    assert ids(explained([replace(named, cause="Other.run")], lost, **changed)) == ([900], [])
    assert ids(explained([replace(named, classes=("Other",))], lost, **changed)) == ([900], [])


def test_a_mend_of_another_finding_with_the_same_cause_counts(tmp_path: Path) -> None:
    """Mend 6 removes the cause of 23 as well."""
    mended = {"plan": {"server": {"mends": ["6"]}}}
    assert ids(explained([finding(23, "never-recovered")], Anomaly("never-recovered", "so"), **mended)) == (
        [],
        ["never-recovered"],
    )


def test_every_finding_names_its_classes() -> None:
    """Findings of a scheme have none: no server has the defect."""
    schemes = {one.id for one in read_findings() if not one.touches}
    assert schemes == {one.id for one in read_findings() if one.cause.startswith("the scheme: ")}


# What commands show.

JUDGED = Judgement(
    [
        CheckResult("log", Verdict.INVALID, "2 lost", [Anomaly("lost", "gone", details={"count": 2})]),
        CheckResult("stats", Verdict.VALID, "fine"),
    ],
    [KnownFinding(5, "a cut-off master", {"lost": 2}, "docs/findings/05-x.md", "--mend 5")],
    [],
)
NEW = replace(JUDGED, known=[], new=["lost"])


def test_the_terminal_says_what_is_known(tmp_path: Path) -> None:
    """Directly above the verdict, which stays INVALID and comes last; the report alone has the details of what is
    known.
    """
    lines = summary(Outcome(RunDir(tmp_path / "log-x" / "2026"), JUDGED, 118.0), Plan())
    again, without, known, new, verdict = lines[-5:]
    assert verdict.startswith("INVALID   ")
    assert known.split() == ["known", "5", "a", "cut-off", "master:", "2", "lost"]
    assert new.split() == ["new", "nothing"]
    assert not any("gone" in line for line in lines)
    assert without.split(maxsplit=2)[0:2] == ["without", "5"]
    assert without.endswith(f"{again.split(maxsplit=1)[1]} --mend 5")
    lines = summary(Outcome(RunDir(tmp_path), NEW, 118.0), Plan())
    assert lines[-2].split() == ["new", "lost"]
    assert any("gone" in line for line in lines)


def test_an_anomaly_is_one_line_of_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first sentence, cut to the width of the terminal. Where no report has the rest, all of it."""
    long = Anomaly("lost", f"n1 lost {'many ' * 30}messages. Message 666 is on no replica.")
    result = CheckResult("log", Verdict.INVALID, "1 lost", [long])
    assert check_lines(result)[1].endswith("many messages.")
    assert check_lines(result, whole=True)[1].endswith("is on no replica.")
    for columns in (80, 100, 200):
        monkeypatch.setattr(terminal, "columns", lambda _, columns=columns: columns)
        (line,) = check_lines(result)[1:]
        assert len(line) == min(
            columns - 1, len(check_lines(result, whole=True)[1]) - len(" Message 666 is on no replica.")
        )
        assert columns == 200 or line.endswith("…")


def test_a_long_reason_stays_in_its_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it, in lines that a terminal does not break by itself. A file gets one line."""
    reason = f"lost {'very many ' * 20}messages"
    result = CheckResult("log", Verdict.INVALID, reason, excuses=[Excuse("lost", 12, f"it is {'so ' * 40}configured")])
    whole = check_lines(result)
    assert [len(whole), whole[0].endswith(reason)] == [2, True]
    for columns in (80, 100, 200):
        monkeypatch.setattr(terminal, "columns", lambda _, columns=columns: columns)
        lines = check_lines(result)
        assert max(map(len, lines)) < columns
        assert " ".join(" ".join(lines).split()) == " ".join(" ".join(whole).split())
        assert all(line.startswith(" " * 32) for line in lines[1:] if "excused" not in line)
    assert terminal.wrapped("word " * 20, 30, 20) == ["word " * 20], "a terminal that is too narrow"


def test_where_nobody_looked_nothing_is_said() -> None:
    """A history from elsewhere has no servers that findings could be about."""
    bare = replace(JUDGED, known=(), new=None)
    assert known_lines(bare) == []
    assert known_lines(Judgement([CheckResult("stats", Verdict.VALID, "fine")], (), ())) == []
    assert any("gone" in line for line in check_lines(bare.results[0]))


def test_the_report_says_what_is_known(tmp_path: Path) -> None:
    """In its head, and beside each anomaly."""
    html = render(run_of(), JUDGED, tmp_path / "report.html")
    assert "a cut-off master: 2 lost" in html
    assert "Known: finding 5 explains it." in html
    assert "<dt>new</dt><dd>nothing</dd>" in html
    html = render(run_of(), NEW, tmp_path / "report.html")
    assert "<dt>new</dt><dd>lost</dd>" in html
    assert "explains it" not in html


def test_the_list_of_runs_says_what_is_known(tmp_path: Path) -> None:
    """`harness serve` shows it beside the verdict, and finds it."""
    for number, judgement in enumerate((JUDGED, NEW)):
        run = RunDir(tmp_path / f"log-{number}" / "2026-11-21T06-12-44")
        run.path.mkdir(parents=True)
        write_verdict(judgement, run.verdict)
    assert [(one.known, one.new) for one in Store(tmp_path).runs()] == [((), ("lost",)), ((5,), ())]
    client = create_app(tmp_path).test_client()
    assert "known 5" in client.get("/?q=known+5").text
    assert "new lost" not in client.get("/?q=known+5").text


# A whole run, and `harness check` of it.


@pytest.fixture
def broken_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    """A run on the simulated service with a defect that the record knows."""
    monkeypatch.setattr(known, "read_record", lambda: [finding(5, "nonlinearizable", version="1")])
    nemeses = (NemesisPlan("sim-partition", 20, 10, "minority"),)
    plan = Plan("register", 3, 30.0, 60.0, options={"ops_per_key": 100}, cluster=ClusterPlan("sim"), nemeses=nemeses)
    return lifecycle.run(prepared(plan, Bug.LOST_WRITE), Store(tmp_path / "runs"), lambda line: None, VirtualTimeLoop)


def harness(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    code = guarded(lambda: cli.main(list(argv), standalone_mode=False))
    return code, capsys.readouterr().out


def test_a_run_is_compared_with_the_findings(broken_run: Outcome) -> None:
    """The verdict on the disk has it, and reads back."""
    stored = read_verdict(broken_run.folder.verdict)
    assert stored == replace(broken_run.judgement, results=stored.results)
    assert (len(stored.known), stored.new) == (1, ())


@pytest.mark.parametrize(("fail_on", "is_known", "code"), [("any", True, 1), ("new", True, 0), ("new", False, 1)])
@pytest.mark.slow
def test_a_stored_run_is_compared_again(
    fail_on: str,
    is_known: bool,
    code: int,
    broken_run: Outcome,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """`harness check` compares with the findings of today. The printed verdict stays invalid."""
    if not is_known:
        monkeypatch.setattr(known, "read_record", list)
    latest, output = tmp_path / "runs" / "latest", tmp_path / "output.json"
    ended, out = harness(capsys, "check", str(latest), "--fail-on", fail_on, "--json", str(output))
    assert ended == code
    facts: Mapping[str, Any] = json.loads(output.read_text())
    assert (facts["verdict"], facts["known"]) == ("invalid", [5] if is_known else [])
    assert "  known " in out if is_known else "  new                 nonlinearizable" in out


# The evidence of a stored run.


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda run: seal([*run.load().history][:-1], run.history), "history.parquet was changed"),
        (lambda run: run.deployment.unlink(), "deployment.json is missing"),
        (lambda run: (run.nodes / "n1" / "x.log").write_text("x"), "n1/x.log was added"),
        (lambda run: run.plan.write_text(run.plan.read_text() + "\n"), "plan.toml was changed"),
    ],
    ids=["changed", "missing", "added", "plan"],
)
@pytest.mark.slow
def test_changed_evidence_leaves_the_verdict_open(
    change: Callable[[RunDir], object], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A history that is replaced, or a log that is cut, was judged without a word. A second check says the same."""
    plan = Plan("register", 5, 10.0, 60.0, cluster=ClusterPlan("sim"), nemeses=())
    folder = lifecycle.run(prepared(plan), Store(tmp_path), lambda line: None, VirtualTimeLoop).folder
    assert harness(capsys, "check", str(folder.path))[0] == 0
    before = read_verdict(folder.verdict).evidence
    change(folder)
    for _ in range(2):
        code, out = harness(capsys, "check", str(folder.path))
        assert (code, "the evidence has changed since the verdict: " in out, said in out) == (2, True, True)
    assert read_verdict(folder.verdict).evidence == before


def test_a_run_of_an_earlier_version_has_no_digests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is judged as before. One without any verdict gets the digests of what it is judged by first."""
    plan = Plan("register", 5, 10.0, 60.0, cluster=ClusterPlan("sim"), nemeses=())
    folder = lifecycle.run(prepared(plan), Store(tmp_path), lambda line: None, VirtualTimeLoop).folder
    write_verdict(replace(read_verdict(folder.verdict), evidence=None), folder.verdict)
    folder.machine.write_text("")
    assert harness(capsys, "check", str(folder.path))[0] == 0
    assert read_verdict(folder.verdict).evidence is None
    folder.verdict.unlink()
    assert harness(capsys, "check", str(folder.path))[0] == 0
    assert read_verdict(folder.verdict).evidence


def test_check_leaves_the_command_and_the_suite_as_they_were(
    broken_run: Outcome, capsys: pytest.CaptureFixture[str]
) -> None:
    """By way of `latest`, which is another run tomorrow."""
    folder = broken_run.folder
    before = folder.junit.read_text(), folder.report.read_text()
    latest = folder.path.parent.parent / "latest"
    assert harness(capsys, "check", str(latest))[0] == 1
    after = folder.junit.read_text(), folder.report.read_text()
    suites = [re.findall(r'<testsuite name="([^"]*)"', text[0]) for text in (before, after)]
    assert suites[0] == suites[1] == ["register-sim-partition"]
    commands = [re.findall(r"<code>(harness [^<]*)</code>", text[1]) for text in (before, after)]
    assert commands[0] == commands[1]
    assert "latest" not in str(commands)
