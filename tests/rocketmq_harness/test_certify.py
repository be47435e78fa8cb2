# SPDX-License-Identifier: Apache-2.0
"""`harness certify`: an operator's files reach the servers whole, and a sheet says no promise held that did not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

import pytest

from harness.boundary import guarded
from harness.cli.main import cli
from harness.parts.resolve import resolve
from harness.plan.plan import Plan, PlanError
from harness.run import lifecycle
from harness.series.child import ChildRun
from infra.systems.api import ServerSettings
from infra.systems.rocketmq.topologies.base import GIVEN
from infra.systems.rocketmq.topologies.controller import ControllerTopology
from infra.systems.rocketmq.topologies.layout import NodeRoles
from results.reading import read_toml
from results.record import RunRecord
from results.store import RunDir
from results.verdict import Anomaly, CheckResult, Judgement, Verdict
from rocketmq_harness.advice import names
from rocketmq_harness.advice.properties import Conf, read_conf
from rocketmq_harness.certify import running, sheet, suite
from rocketmq_harness.certify.files import DATA, Taken, both, take
from rocketmq_harness.certify.sheet import Row, Run, Sheet, compared, judged_run, lines, verdict

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "certify"
VERSION = "5.5.0"


def conf(kind: str, **values: str) -> Conf:
    return Conf(kind, Path(f"{kind}.conf"), dict(values), {name: [at] for at, name in enumerate(values, 1)})


def taken(**broker: str) -> Taken:
    return take([conf("broker", enableControllerMode="true", **broker)], VERSION, "controller", 3)


def known_everywhere() -> set[str]:
    return {name for kind in ("broker", "controller", "namesrv") for name in names.versions_of(kind)}


def test_every_name_that_is_set_aside_is_one_that_servers_read() -> None:
    """A misspelt name would let an operator's address or path into a run, and be found there only."""
    table = read_toml(DATA)
    patterns = [name for row in table["aside"] for name in row["names"]]
    for pattern in patterns:
        assert pattern == "tieredStore*" or any(fnmatchcase(name, pattern) for name in known_everywhere()), pattern
    for row in (*table["lowered"], *table["raised"]):
        assert row["name"] in names.versions_of(row["kind"])


def test_time_limits_and_flush_settings_stay_and_addresses_go() -> None:
    found = taken(
        brokerName="mine",
        namesrvAddr="10.0.0.1:9876",
        storePathRootDir="/data",
        flushDiskType="SYNC_FLUSH",
        brokerNotActiveTimeoutMillis="10000",
        flushIntervalCommitLog="250",
    )
    assert found.settings == {
        "broker.flushDiskType": "SYNC_FLUSH",
        "broker.brokerNotActiveTimeoutMillis": "10000",
        "broker.flushIntervalCommitLog": "250",
    }
    assert [one.name for one in found.changed] == [
        "enableControllerMode",
        "brokerName",
        "namesrvAddr",
        "storePathRootDir",
    ]
    assert all(one.used is None and one.why for one in found.changed)


@pytest.mark.parametrize(
    ("name", "given", "used"),
    [
        ("mappedFileSizeCommitLog", "1073741824", "33554432"),
        ("mappedFileSizeCommitLog", "1048576", "1048576"),
        ("maxMessageSize", "4194304", "4194304"),
        ("diskMaxUsedSpaceRatio", "75", "95"),
        ("diskMaxUsedSpaceRatio", "98", "98"),
    ],
)
def test_what_is_lowered_or_raised_is_told(name: str, given: str, used: str) -> None:
    found = taken(**{name: given})
    assert found.settings[f"broker.{name}"] == used
    assert [one.name for one in found.changed if one.used is not None] == ([name] if given != used else [])


def test_a_setting_that_the_version_does_not_read_is_left_out_and_told() -> None:
    found = taken(flushDiskTyp="SYNC_FLUSH")
    assert not found.settings
    assert "no broker of 5.5.0 reads it" in str(found.changed[-1])


def test_an_upgrade_has_the_settings_that_both_versions_read() -> None:
    newer = next(
        name
        for name, versions in names.versions_of("broker").items()
        if VERSION in versions and "5.3.3" not in versions
    )
    found = taken(**{newer: "1", "flushDiskType": "SYNC_FLUSH"})
    left = both(found, "5.3.3")
    assert left.settings == {"broker.flushDiskType": "SYNC_FLUSH"}
    assert str(left.changed[-1]) == f"broker.{newer}=1: 5.3.3 does not read it"
    assert f"broker.{newer}" in found.settings


def test_controllers_inside_of_name_servers_are_read_from_their_file() -> None:
    files = [
        conf("broker", enableControllerMode="true"),
        conf("namesrv", enableControllerInNamesrv="true", controllerType="jRaft", enableElectUncleanMaster="true"),
    ]
    found = take(files, VERSION, "controller", 3)
    assert found.options == {"brokers": 3, "controller_type": "jraft-embedded"}
    assert found.settings == {"controller.enableElectUncleanMaster": "true"}
    assert found.absent == []
    assert taken().absent == ["controller", "namesrv"]


@pytest.mark.parametrize(
    ("values", "topology", "says"),
    [
        ({"enableControllerMode": "true"}, "master-slave", "line 1: enableControllerMode=true; --topology controller"),
        ({"brokerRole": "SYNC_MASTER"}, "controller", "has enableControllerMode=true; this file does not"),
        ({"enableDLegerCommitLog": "false"}, "dledger-commitlog", "has enableDLegerCommitLog=true"),
    ],
)
def test_a_file_for_another_topology_is_refused(values: dict[str, str], topology: str, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        take([conf("broker", **values)], VERSION, topology, 3)


def test_the_profile_has_the_servers_own_time_limits() -> None:
    """With the short limits of other runs a certificate would be about a configuration that nobody has."""
    settings = {"broker.controllerHeartBeatTimeoutMills": "7000"}
    topology = ControllerTopology(ServerSettings(profile=GIVEN, settings=settings))
    found = topology.configured("broker", NodeRoles(("broker",), "a"))
    assert found["controllerHeartBeatTimeoutMills"] == "7000"
    assert found["mappedFileSizeCommitLog"] == str(32 << 20)
    for name in ("brokerNotActiveTimeoutMillis", "haHousekeepingInterval", "allAckInSyncStateSet", "fileReservedTime"):
        assert name not in found


@pytest.mark.parametrize("topology", ["controller", "dledger-commitlog", "master-slave", "slave-acting-master"])
def test_every_plan_of_the_suite_is_one_that_the_harness_runs(topology: str) -> None:
    flag = {
        "controller": "enableControllerMode",
        "dledger-commitlog": "enableDLegerCommitLog",
        "slave-acting-master": "enableSlaveActingMaster",
    }.get(topology)
    given = take([conf("broker", **({flag: "true"} if flag else {}), fileReservedTime="48")], VERSION, topology, 3)
    for fault in suite.faults():
        plan, _ = suite.plan(fault, given, VERSION, "5.3.3", "docker", 1)
        resolved = resolve(Plan.from_dict(plan.to_dict()))
        bare = replace(plan, server=replace(plan.server, settings={}))  # (servers would be asked about settings)
        lifecycle.check(resolve(bare))  # a cut that three nodes do not allow was found only behind the first run
        assert resolved.server.profile == GIVEN
        assert plan.server.version == ("5.3.3" if fault.name == suite.UPGRADE else VERSION)


def test_every_anomaly_of_a_promise_has_a_chapter() -> None:
    """A misspelt name would make a broken promise one of the kind `other`."""
    chapters = (ROOT / "docs" / "anomalies.md").read_text()
    listed = [name for promise in suite.promises() for name in promise.anomalies]
    assert len(listed) == len(set(listed))
    for name in listed:
        assert f"\n## {name}\n" in chapters, name
    assert suite.promise_of("lost") == "kept"
    assert suite.promise_of("of-another-kind") == suite.OTHER


def result(checker: str, word: Verdict, *anomalies: Anomaly, **stats: Any) -> CheckResult:
    return CheckResult(checker, word, "the reason", anomalies, stats)


def kept(*anomalies: Anomaly, tried: Verdict = Verdict.VALID) -> Run:
    word = Verdict.INVALID if any(a.counts for a in anomalies) else Verdict.VALID
    results = [
        result("faults", tried),
        result("log", word, *anomalies),
        result("availability", Verdict.VALID, longest_silence_s=12.5, acks=100),
    ]
    return judged_run(Path("run"), cast(RunRecord, None), Judgement(results))


def test_a_permitted_loss_is_no_promise_that_held() -> None:
    """An operator asks for his messages, and not for the rule by which they may be gone."""
    run = kept(Anomaly("lost", "gone", details={"count": 7}, legal="flushDiskType=ASYNC_FLUSH"))
    assert (run.lost, run.broken, run.permitted) == (7, {"kept": {"lost": 7}}, ["flushDiskType=ASYNC_FLUSH"])
    assert Row("kill", "", [run, kept()]).held("kept") == 1


def test_a_run_without_the_fault_is_no_evidence() -> None:
    run = kept(tried=Verdict.UNKNOWN)
    row = Row("kill", "", [run])
    assert run.why
    assert not row.judged
    assert "-  " in list(lines(made(row)))[4]


def test_what_a_judge_did_not_decide_did_not_hold() -> None:
    """A log that was not read to its end breaks nothing that can be seen, and promises nothing, either."""
    results = [result("faults", Verdict.VALID), result("log", Verdict.UNKNOWN)]
    left = judged_run(Path("run"), cast(RunRecord, None), Judgement(results))
    doubted = kept(Anomaly("never-recovered", "late", doubt="the machine had no processor left"))
    for run in (left, doubted):
        row = Row("kill", "", [run, kept()])
        assert (row.held("kept"), len(row.tried("kept"))) == (1, 1)
        assert verdict(made(row)) == Verdict.UNKNOWN
        assert any(line.startswith("kill: not decided: ") for line in lines(made(row)))
    lost = result("log", Verdict.INVALID, Anomaly("lost", "gone"))
    broken = judged_run(Path("run"), cast(RunRecord, None), Judgement([*results, lost]))
    assert (Row("kill", "", [broken]).held("kept"), len(Row("kill", "", [broken]).tried("true"))) == (0, 0)


def made(*rows: Row, changed: Sequence[str] = ()) -> Sheet:
    return Sheet(VERSION, "controller", 3, {"broker": "broker.conf"}, changed, [], "harness 1", list(rows))


def test_the_verdict_of_a_sheet_is_its_worst_row() -> None:
    held, broken, untried = kept(), kept(Anomaly("lost", "gone")), kept(tried=Verdict.UNKNOWN)
    assert verdict(made(Row("a", "", [held]), Row("b", "", left_out="no"))) == Verdict.VALID
    assert verdict(made(Row("a", "", [held]), Row("b", "", [untried]))) == Verdict.UNKNOWN
    assert verdict(made(Row("a", "", [held, broken]), Row("b", "", [untried]))) == Verdict.INVALID


def test_two_sheets_differ_where_they_differ() -> None:
    first = made(Row("kill", "", [kept()]), Row("cut", "", [kept()]), changed=["one"])
    second = made(Row("kill", "", [kept(Anomaly("lost", "gone"))]), Row("cut", "", [kept()]))
    text = "\n".join(compared(first, second))
    assert "only A: one" in text
    assert "1 of 1 | 0 of 1" in text
    assert "0 | 1 of 100" in text
    assert "the same in both: cut" in text


class Command:
    """The command, with runs that are given."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.runs = folder, iter(())
        self.plans: list[Plan] = []
        self.options: list[Sequence[str]] = []
        monkeypatch.chdir(folder)
        monkeypatch.setattr("harness.series.child.run_child", self.child)
        monkeypatch.setattr(lifecycle, "check", lambda plan: None)  # (Java is asked about the settings)
        monkeypatch.setattr(running, "_judged", lambda done: next(self.runs))

    def child(self, args: Sequence[str], store: Path) -> ChildRun:
        self.plans.append(Plan.read(Path(args[1])))
        self.options.append(args[2:])
        return ChildRun(Verdict.VALID.exit_code, RunDir(self.folder))

    def certify(self, runs: Iterator[Run], *more: str) -> int:
        self.runs = runs
        files = ["--broker-conf", str(EXAMPLE / "broker.conf"), "--controller-conf", str(EXAMPLE / "controller.conf")]
        argv = ["certify", *files, "--version", VERSION, "--topology", "controller", "--replicas", "3", *more]
        return guarded(lambda: cli.main(argv, standalone_mode=False))


def test_the_suite_ends_in_a_sheet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = Command(tmp_path, monkeypatch)
    broken = kept(Anomaly("lost", "gone", details={"count": 3}))
    runs = [broken, *(kept() for _ in suite.faults())]
    assert command.certify(iter(runs), "--from", "5.3.3", "--output", "sheet.json") == 1
    out = capsys.readouterr().out
    assert "kill        0 of 1" in out.replace("kill       0", "kill        0")
    assert "3 of 100" in out
    assert len(command.plans) == len(suite.faults())
    assert command.plans[-1].server.version == "5.3.3"
    assert command.options[-1] == []  # an upgraded cluster is nobody else's
    again = Sheet.read(tmp_path / "sheet.json")
    assert again.to_json() == json.loads((tmp_path / "sheet.json").read_text())
    assert guarded(lambda: cli.main(["certify", "sheet.json"], standalone_mode=False)) == 0
    assert "kill: kept: 3 lost" in capsys.readouterr().out


def test_without_an_older_version_no_upgrade_is_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = Command(tmp_path, monkeypatch)
    assert command.certify(iter([kept(), kept()]), "--fault", "kill", "--runs", "2") == 0
    out = capsys.readouterr().out
    assert "2 of 2" in out
    assert "cut: left out by --fault" in out
    assert [plan.seed for plan in command.plans] == [1, 2]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--from", "5.5.0"], "--from 5.5.0 is not older than --version 5.5.0"),
        (["--fault", "kil"], "--fault kil: the suite has kill, cut, machine"),
        (["--from", "5.9"], "5.9 is not pinned here"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = Command(tmp_path, monkeypatch)
    assert command.certify(iter(()), *words) == 64
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', '{"format": 1, "rows": 3}', "\x00"])
def test_a_file_that_is_no_sheet_is_one_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "sheet.json"
    path.write_text(text)
    with pytest.raises(PlanError, match=r"not a sheet of harness certify|another version"):
        Sheet.read(path)


def test_the_example_of_the_page_is_whole() -> None:
    found = take(
        [read_conf("broker", EXAMPLE / "broker.conf"), read_conf("controller", EXAMPLE / "controller.conf")],
        VERSION,
        "controller",
        3,
    )
    assert found.settings["broker.flushDiskType"] == "ASYNC_FLUSH"
    assert found.settings["controller.notifyBrokerRoleChanged"] == "true"
    assert sheet.FORMAT == 1
