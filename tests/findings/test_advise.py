# SPDX-License-Identifier: Apache-2.0
"""`harness advise`: a wrong reassurance is the worst that it could say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.cli.main import cli, guarded
from harness.findings.record import read_findings
from harness.parts import registry
from harness.plan.plan import PlanError
from infra.systems.rocketmq.servers import artifacts
from rocketmq_harness.advice import advice, measured, names
from rocketmq_harness.advice.advice import Advice
from rocketmq_harness.advice.contradictions import problems
from rocketmq_harness.advice.properties import Conf, read_conf
from rocketmq_harness.advice.rules import ANY, UNKNOWN, promise, rules
from rocketmq_harness.advice.setup import CONTROLLER_DEFAULTS, DEFAULTS, NAMESRV_DEFAULTS, TOPOLOGIES, Setup, taken

ROOT = Path(__file__).parents[2]
FINDINGS = read_findings()

CONTROLLED = "enableControllerMode=true\nallAckInSyncStateSet=true\nminInSyncReplicas=2\n"
ACTING = "enableSlaveActingMaster=true\nbrokerRole=SYNC_MASTER\ntotalReplicas=3\n"
SYNC = "brokerRole=SYNC_MASTER\ninSyncReplicas=2\n"
RAFT = "enableDLegerCommitLog=true\n"


def conf(text: str, kind: str = "broker", folder: Path | None = None) -> Conf:
    found = Conf(kind, Path(f"{kind}.conf"))
    for number, line in enumerate(text.splitlines(), 1):
        name, _, value = line.partition("=")
        found.values[name] = value
        found.lines.setdefault(name, []).append(number)
    return found


def setup(
    text: str,
    topology: str,
    replicas: int = 3,
    version: str = "5.5.0",
    controller: str | None = None,
    namesrv: str = "",
) -> Setup:
    return Setup(
        version,
        topology,
        replicas,
        conf(text),
        None if controller is None else conf(controller, "controller"),
        conf(namesrv, "namesrv") if namesrv else None,
    )


def advised(*args: Any, **more: Any) -> Advice:
    return advice.advise(setup(*args, **more), FINDINGS)


# The rules.


def test_the_rules_are_those_of_the_page() -> None:
    """docs/quorum-ack.md has each rule in the same words; one that it does not have names its place in the source."""
    page = (ROOT / "docs" / "quorum-ack.md").read_text().partition("## The rules")[2].partition("## Measured")[0]
    table = [row for row in page.splitlines() if row.startswith("| `")]
    for rule in rules():
        if not rule.source:
            assert any(rule.means in row and f"`{rule.topologies[0]}`" in row for row in table), rule.means
    for row in table:
        assert any(rule.means in row for rule in rules()), row


SURVIVES = [
    # settings, topology, replicas, controllers, copies, process, machine, power, disk, link
    (CONTROLLED, "controller", 3, "a=1", 2, ANY, "1", "1", "1", ANY),
    ("enableControllerMode=true\nallAckInSyncStateSet=true", "controller", 3, "a=1", 1, ANY, "0", "0", "0", ANY),
    ("enableControllerMode=true\ninSyncReplicas=3", "controller", 3, "a=1", 3, "0", "0", "0", "0", "0"),
    (CONTROLLED, "controller", 3, "enableElectUncleanMaster=true", 2, "0", "0", "0", "0", "0"),
    (CONTROLLED + "duplicationEnable=true", "controller", 3, "a=1", 1, "0", "0", "0", "0", "0"),
    (SYNC, "master-slave", 3, None, 2, ANY, "1", "0", "1", ANY),
    (SYNC + "flushDiskType=SYNC_FLUSH", "master-slave", 3, None, 2, ANY, "1", ANY, "1", ANY),
    (SYNC + "flushDiskType=sync_flush", "master-slave", 3, None, 2, ANY, "1", "0", "1", ANY),
    ("inSyncReplicas=3", "master-slave", 3, None, 1, ANY, "0", "0", "0", ANY),
    ("brokerRole=SYNC_MASTER", "master-slave", 3, None, 1, ANY, "0", "0", "0", ANY),
    (SYNC + "transientStorePoolEnable=true", "master-slave", 3, None, 2, UNKNOWN, "1", UNKNOWN, "1", ANY),
    (SYNC, "master-slave", 1, None, None, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
    ("brokerRole=SLAVE\nbrokerId=1", "master-slave", 3, None, None, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
    (ACTING + "inSyncReplicas=2", "slave-acting-master", 3, None, 2, ANY, "1", "0", "1", ANY),
    (
        ACTING + "inSyncReplicas=3\nenableAutoInSyncReplicas=true\nminInSyncReplicas=2",
        "slave-acting-master", 3, None, 2, ANY, "1", "0", "1", ANY,
    ),
    (
        ACTING + "inSyncReplicas=3\nenableAutoInSyncReplicas=true",
        "slave-acting-master", 3, None, 1, ANY, "0", "0", "0", ANY,
    ),
    (RAFT, "dledger-commitlog", 5, None, 3, ANY, "2", "2", "2", ANY),
    (RAFT + "flushDiskType=SYNC_FLUSH", "dledger-commitlog", 3, None, 2, ANY, "1", "1", "1", ANY),
    (RAFT, "dledger-commitlog", 2, None, 2, ANY, "0", "0", "0", ANY),
]  # fmt: skip


@pytest.mark.parametrize("row", SURVIVES, ids=lambda row: re.sub(r"\W+", "-", f"{row[1]} {row[2]} {row[0]}"))
def test_how_many_losses_an_acknowledgement_survives(row: tuple[Any, ...]) -> None:
    text, topology, replicas, controller, copies, *survived = row
    found = promise(setup(text, topology, replicas, controller=controller))
    assert found.copies == copies
    assert [number for number, _ in found.survives.values()] == survived


def test_the_settings_of_the_broker_decide_and_not_the_name_of_the_topology() -> None:
    """A broker without `enableControllerMode` is a fixed master, also where its operator believes in controllers."""
    found = advised("allAckInSyncStateSet=true\nminInSyncReplicas=2", "controller", version="5.5.0")
    assert found.promise.copies == 1
    assert "in the mode master-slave (`enableControllerMode` is not true)" in found.problems[0].text
    assert 5 not in [one.finding.id for one in found.applying]


# Findings.


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("version", artifacts.VERSIONS)
def test_each_finding_has_its_place(version: str, topology: str) -> None:
    """It applies, was excluded, was run and not seen, or was not measured: none is passed over in silence."""
    text = {"controller": CONTROLLED, "master-slave": SYNC, "slave-acting-master": ACTING, "dledger-commitlog": RAFT}
    found = advised(text[topology], topology, version=version)
    assert found.setup.mode == topology
    groups = [found.applying, found.excluded, found.never_shown, found.untried, found.other]
    placed = sorted(one.finding.id for group in groups for one in group)
    assert placed == [finding.id for finding in FINDINGS if finding.topologies != ("dledger",)]
    for one in (*found.applying, *found.excluded):
        assert one.rate or one.elsewhere, one.finding.id
    for one in (*found.untried, *found.other):
        assert not one.rate


def test_a_finding_that_breaks_the_rule_stands_beside_the_number() -> None:
    found = advised(CONTROLLED, "controller", 5, "5.5.0")
    link = next(loss for loss in found.losses if loss.kind == "link")
    assert link.number == ANY
    five = next(one for one in link.broken if one.finding.id == 5)
    assert five.evidence.startswith("finding 5: 14 of 14")


def test_what_was_not_run_here_stands_beside_the_number() -> None:
    """5.1.1 with a fixed master: nobody filled a disk there."""
    found = advised(SYNC, "master-slave", 3, "5.1.1")
    disk = next(loss for loss in found.losses if loss.kind == "disk")
    assert {one.finding.id for one in (*disk.broken, *disk.untried)} >= {17, 18, 55}


def test_runs_with_the_mend_of_a_finding_are_no_rate_of_it() -> None:
    series = [one for one in measured.series_of(FINDINGS) if one.finding == 5 and one.of("5.5.0")]
    assert (sum(one.shown for one in series), sum(one.runs for one in series)) == (14, 14)
    assert {one.topology for one in series} == {"controller"}
    assert {column for one in series for column in one.faults} == {"cut", measured.OTHER}


def test_runs_that_try_a_remedy_do_not_lower_a_rate() -> None:
    """26 showed in 5 of 5 runs; in 3 more, `enableRemoteEscape` was off."""
    found = advised(ACTING, "slave-acting-master", version="5.4.0")
    assert next(one for one in found.applying if one.finding.id == 26).rate == "5 of 5 (0.48 to 1.00)"


def test_a_series_belongs_to_a_topology_on_which_its_finding_was_seen() -> None:
    for one in measured.series_of(FINDINGS):
        seen_on = next(finding.topologies for finding in FINDINGS if finding.id == one.finding)
        assert not seen_on or one.topology in seen_on, one


def test_a_finding_that_was_run_in_vain_is_no_all_clear() -> None:
    found = advised(CONTROLLED, "controller", 5, "5.3.3")
    five = next(one for one in found.never_shown if one.finding.id == 5)
    assert five.rate == "0 of 5 (0.00 to 0.52)"


def test_settings_rule_findings_out_only_where_they_are_known() -> None:
    def excluded(**more: Any) -> set[int]:
        found = advised(CONTROLLED + more.pop("broker", ""), "controller", 3, "5.5.0", **more)
        return {one.finding.id for one in found.excluded}

    assert excluded() == {57}
    assert excluded(broker="writeWithoutMmap=true") == set()
    assert excluded(controller="controllerType=jRaft") >= {39, 40, 60, 62}
    assert excluded(controller="controllerType=DLedger") >= {38, 71}
    assert excluded(namesrv="enableControllerInNamesrv=true\ncontrollerType=jRaft") >= {39, 40}
    assert excluded(namesrv="listenPort=9876") == {57}
    assert excluded(broker="flushDiskType=SYNC_FLUSH") == {18, 57}


def test_the_data_names_findings_and_workloads_that_exist() -> None:
    ids = {finding.id for finding in FINDINGS}
    assert set(advice._NEEDS) <= ids
    topologies = {name: registry.workload_class(name).topologies[0] for name in registry.names(registry.WORKLOADS)}
    ours = {name: topology for name, topology in topologies.items() if name in measured.TOPOLOGY_OF}
    assert ours == measured.TOPOLOGY_OF
    assert set(topologies) - set(measured.TOPOLOGY_OF) <= {"any", "restart-one", "write-heavy", "slow-uplink"}
    assert set(measured.FAULTS) <= set(registry.names(registry.NEMESES))


# Settings.

PROBLEMS = [
    (CONTROLLED + "brokerRole=SYNC_MASTER", "controller", {}, "`brokerRole` has no effect in controller mode"),
    (RAFT + "brokerRole=SYNC_MASTER", "dledger-commitlog", {}, "`brokerRole` has no effect with"),
    (RAFT + "flushDiskType=SYNC_FLUSH", "dledger-commitlog", {}, "`flushDiskType` has no effect"),
    (RAFT + "enableControllerMode=true", "controller", {}, "are both true; the broker does not start"),
    (CONTROLLED + "enableSlaveActingMaster=true", "controller", {}, "a send goes by the controller mode"),
    (SYNC + "aclEnable=true", "master-slave", {}, "`aclEnable` has no effect: 5.5.0 takes it, and uses it nowhere"),
    (
        SYNC + "flushDiskType=SYNC",
        "master-slave",
        {},
        "`flushDiskType=SYNC` is not taken, and the value is ASYNC_FLUSH",
    ),
    (SYNC + "flushDiskType=SYNC_FLUSH ", "master-slave", {"version": "5.1.1"}, "without spaces behind it"),
    (SYNC + "enableControllerMode=yes", "master-slave", {}, "the value is false; true or false is right"),
    (
        "brokerRole=SYNC_MASTER\ninSyncReplicas=2 ",
        "master-slave",
        {},
        "`inSyncReplicas=2 ` is not taken, and the value is 1",
    ),
    (SYNC, "master-slave", {"replicas": 1}, "`inSyncReplicas` is 2, and a group has 1 replicas: no send"),
    (ACTING + "inSyncReplicas=4", "slave-acting-master", {}, "a group has 3 replicas: each send is refused"),
    (CONTROLLED + "minInSyncReplicas=4", "controller", {}, "`minInSyncReplicas` is 4, and a group has 3 replicas"),
    (CONTROLLED + "minInSyncReplicas=1", "controller", {}, "the master acknowledges alone"),
    (
        CONTROLLED + "inSyncReplicas=2",
        "controller",
        {},
        "`inSyncReplicas` has no effect with `allAckInSyncStateSet=true`",
    ),
    (CONTROLLED + "enableAutoInSyncReplicas=true", "controller", {}, "`enableAutoInSyncReplicas` has no effect"),
    (SYNC + "minInSyncReplicas=2", "master-slave", {}, "`minInSyncReplicas` has no effect in the mode master-slave"),
    (SYNC + "allAckInSyncStateSet=true", "master-slave", {}, "`allAckInSyncStateSet` has no effect"),
    ("inSyncReplicas=2", "master-slave", {}, "with `brokerRole` ASYNC_MASTER (the default) the master waits for no"),
    ("brokerRole=SYNC_MASTER", "master-slave", {}, "waits for nobody: `inSyncReplicas` is 1"),
    (
        ACTING + "inSyncReplicas=2\nminInSyncReplicas=2",
        "slave-acting-master",
        {},
        "`minInSyncReplicas` has no effect without",
    ),
    (ACTING.replace("3", "1"), "slave-acting-master", {}, "`totalReplicas` is 1, and --replicas is 3"),
    (ACTING, "slave-acting-master", {"namesrv": "listenPort=1"}, "`supportActingMaster` is not true"),
    ("brokerRole=SLAVE", "master-slave", {}, "`brokerId` is not above 0; the broker does not start"),
    (SYNC + "transientStorePoolEnable=true", "master-slave", {}, "the end of the process loses them"),
    (SYNC + "inSyncReplica=2", "master-slave", {}, "did you mean `inSyncReplicas`?"),
    (
        SYNC + "recallMessageEnable=true",
        "master-slave",
        {"version": "5.1.0"},
        "5.1.0 does not read it; 5.3.3, 5.4.0, 5.5.0 do",
    ),
    (SYNC + "enableElectUncleanMaster=true", "master-slave", {}, "reads it; a controller has it"),
    (
        SYNC + "inSyncReplicas=2",
        "master-slave",
        {},
        "`inSyncReplicas` is set 2 times (lines 2, 3); the last one counts",
    ),
]


@pytest.mark.parametrize(("text", "topology", "more", "said"), PROBLEMS, ids=[row[3][:40] for row in PROBLEMS])
def test_settings_against_each_other_are_said(text: str, topology: str, more: dict[str, Any], said: str) -> None:
    found = problems(setup(text, topology, **more))
    (problem,) = [one for one in found if said in one.text]
    assert problem.evidence


@pytest.mark.parametrize(
    ("text", "topology"),
    [
        (CONTROLLED, "controller"),
        (SYNC + "flushDiskType=SYNC_FLUSH", "master-slave"),
        (ACTING + "inSyncReplicas=2", "slave-acting-master"),
        (RAFT, "dledger-commitlog"),
        (SYNC + "tieredStoreFilepath=/x", "master-slave"),
    ],
)
def test_settings_that_fit_are_not_blamed(text: str, topology: str) -> None:
    assert problems(setup(text, topology)) == []


def test_a_file_of_something_else_gives_no_flood(tmp_path: Path) -> None:
    text = "".join(f"key{number}=value\n" for number in range(5000))
    found = problems(setup(text, "master-slave"))
    assert len(found) < 60
    assert any("4950 more names that no broker of 5.5.0 reads" in one.text for one in found)


@pytest.mark.parametrize(
    ("name", "value", "version", "takes"),
    [
        ("flushDiskType", "SYNC_FLUSH ", "5.1.1", "ASYNC_FLUSH"),
        ("flushDiskType", "SYNC_FLUSH ", "5.2.0", "SYNC_FLUSH"),
        ("flushDiskType", "sync_flush", "5.5.0", "ASYNC_FLUSH"),
        ("inSyncReplicas", "2 ", "5.5.0", "1"),
        ("inSyncReplicas", "+3", "5.5.0", "3"),
        ("inSyncReplicas", "9" * 5000, "5.5.0", "1"),
        ("allAckInSyncStateSet", "true ", "5.5.0", "false"),
        ("allAckInSyncStateSet", "TRUE", "5.5.0", "true"),
    ],
)
def test_values_are_taken_as_servers_take_them(name: str, value: str, version: str, takes: str) -> None:
    """Seen with `MixAll.properties2Object` of each version."""
    assert taken(name, value, DEFAULTS[name], version) == takes


def test_the_settings_that_are_looked_at_exist_in_some_version() -> None:
    for kind, defaults in (("broker", DEFAULTS), ("controller", CONTROLLER_DEFAULTS), ("namesrv", NAMESRV_DEFAULTS)):
        assert set(defaults) <= set(names.versions_of(kind))


@pytest.mark.slow
def test_the_names_are_those_of_the_jars() -> None:
    assert names.DATA.read_text() == names.made(), "python -m rocketmq_harness.advice.names brings the file up to date"


# Files.


def test_a_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_bytes(
        b"# \xe6\x85\x85=comment\r\n! another\r\n  a = 1\r\nb:2\nc 3\nd\\=e=4 \nlong=x,\\\n   y\n\n"
        b"empty\nf=\\u0041\\tb\nlast=caf\xe9\na=5"
    )
    found = read_conf("broker", path)
    assert found.values == {
        "a": "5",
        "b": "2",
        "c": "3",
        "d=e": "4 ",
        "long": "x,y",
        "empty": "",
        "f": "A\tb",
        "last": "café",
    }
    assert found.lines["a"] == [3, 13]
    assert found.where("long") == "broker.conf, line 7"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "has no setting"),
        (b"# only\n", "has no setting"),
        (b"a=\0", "contains NUL bytes"),
        (b"a" * (2 << 20), "at most 1"),
        (None, "No such file or directory"),
    ],
)
def test_what_is_no_file_of_settings_is_one_line(
    data: bytes | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broker.conf"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(PlanError, match=re.escape(said)):
        read_conf("broker", path)
    code, out, err = harness(capsys, str(path))
    assert (code, out, err.count("\n")) == (64, "", 1)


# The command.


def harness(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    words = ["advise", "--version", "5.5.0", "--topology", "controller", "--replicas", "3", *argv]
    code = guarded(lambda: cli.main(words, prog_name="harness", standalone_mode=False))
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def written(folder: Path, text: str) -> str:
    (folder / "broker.conf").write_text(text)
    return str(folder / "broker.conf")


def test_the_answer_has_rule_findings_and_what_to_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = harness(capsys, written(tmp_path, CONTROLLED + "brokerRole=SYNC_MASTER\n"))
    flat = " ".join(out.split())
    assert code == 1
    for part in (
        "broker.conf, line 4: `brokerRole` has no effect in controller mode",
        "A message is acknowledged when every member of the SyncStateSet has it",
        "So 2 of 3 replicas have it at least, in memory or on the disk.",
        "link NOT SURE. any number by the rule",
        "Broken by finding 5: 14 of 14 (0.77 to 1.00)",
        "Runs that looked at the copies: not measured",
        "meanwhile: Check after every partition which messages the old master truncated",
        "Not measured with 5.5.0 on controller, seen with other versions: 7,",
    ):
        assert part in flat, part


def test_json_has_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = harness(capsys, written(tmp_path, CONTROLLED), "--json")
    assert code == 0
    found = json.loads(out)
    assert found["copies"] == 2
    assert found["problems"] == []
    link = next(one for one in found["survives"] if one["loss"] == "link")
    assert link["broken_by"][0] == {
        "id": 5,
        "title": "a cut-off master acknowledges what nobody else has",
        "rate": "14 of 14 (0.77 to 1.00)",
        "rate_on_other_topologies": "not measured",
        "page": "docs/findings/05-cut-off-master.md",
    }
    assert all(one["meanwhile"] for one in found["findings"])


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--version", "5.1.4"], "RocketMQ 5.1.4 is published incomplete"),
        (["--version", "4.9.4"], "is not pinned here, only 5.1.0"),
        (["--topology", "raft"], "'raft' is not one of"),
        (["--replicas", "0"], "0 is not in the range"),
        (["--controller-conf", "/etc"], "/etc: cannot be read: a folder, not a regular file"),
    ],
)
def test_bad_input_is_one_line(argv: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = harness(capsys, written(tmp_path, CONTROLLED), *argv)
    assert (code, out, err.count("\n")) == (64, "", 1)
    assert said in err


def test_it_loads_no_numbers_and_no_engine(tmp_path: Path) -> None:
    """A second or less: what takes longer to load than to answer stays out."""
    code = (
        "import sys\nfrom harness.cli.main import main\n"
        "try: main(sys.argv[1:])\nexcept SystemExit: pass\nprint(*sys.modules, file=sys.stderr)"
    )
    argv = [
        "advise",
        written(tmp_path, CONTROLLED),
        "--version",
        "5.5.0",
        "--topology",
        "controller",
        "--replicas",
        "3",
    ]
    done = subprocess.run(
        [sys.executable, "-c", code, *argv], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    modules = set(done.stderr.splitlines()[-1].split())
    assert modules.isdisjoint(("numpy", "numba", "docker", "paramiko", "pyarrow", "jinja2", "flask"))
