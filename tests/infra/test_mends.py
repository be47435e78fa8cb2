# SPDX-License-Identifier: Apache-2.0
"""Mends: their files, how they are chosen, and the agent at work in real JVMs."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.findings.record import read_findings
from harness.parts.resolve import resolve
from harness.plan.plan import Plan, ServerPlan
from infra.machines.api import InfraError, SettingsError
from infra.systems.dledger import server as dledger
from infra.systems.maven import fetch_jars
from infra.systems.mends import apply
from infra.systems.mends.catalog import (
    Edit,
    Mend,
    applied,
    choose,
    mend_of,
    mends,
    numbers,
    orders,
    read_mends,
)
from infra.systems.rocketmq.applications.java import JavaProgram
from infra.systems.rocketmq.applications.library import Library
from infra.systems.rocketmq.servers import artifacts
from infra.systems.settings import properties
from results.deployment import DeploymentRecord, ServerRecord

GOOD = """
reason = "it is right"
versions = ["rocketmq 5.5.0"]
[[edit]]
method = "a.B.c"
at = "body"
source = "{}"
"""


# The files.


def test_every_mend_is_of_a_finding_and_for_a_version_that_there_is() -> None:
    from infra.systems.dledger.topology import DledgerTopology
    from infra.systems.rocketmq.topologies.controller import ControllerTopology

    findings = {finding.id for finding in read_findings()}
    versions = {**ControllerTopology.known_versions(), **DledgerTopology.known_versions()}
    for mend in mends():
        assert set(mend.findings) <= findings, mend.name
        assert set(mend.versions) <= set(versions), mend.name


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "05-x.toml").write_text(GOOD)
    edit = Edit("a.B.c", "body", "{}")
    assert read_mends(tmp_path) == [Mend(5, "x", "it is right", "", ("rocketmq 5.5.0",), (edit,))]


def test_a_finding_with_the_cause_of_another_one_has_its_mend() -> None:
    mend = mend_of(23)
    assert mend is not None
    assert mend.id == 6
    assert choose(["23"], ["rocketmq 5.5.0"]) == choose(["6,23"], ["rocketmq 5.5.0"]) == [mend]


def test_no_finding_has_two_mends() -> None:
    numbers = [number for mend in mends() for number in mend.findings]
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.toml", GOOD, "a mend's file is named NN-NAME.toml"),
        ("05-x.toml", "reason = ", "05-x.toml: "),
        ("05-x.toml", GOOD.partition("[[")[0], "there is no [[edit]]"),
        ("05-x.toml", GOOD.replace("reason", "reasons"), "has no option 'reasons'; did you mean 'reason'?"),
        ("05-x.toml", GOOD.replace("body", "end"), "edit 1: at is 'end'; call or before or after or body is right"),
        ("05-x.toml", GOOD.replace("body", "call"), 'edit 1: call = "CLASS.METHOD" goes with at = "call"'),
        ("05-x.toml", GOOD.replace("a.B.c", "c"), "edit 1: method is 'c'; CLASS.METHOD is right"),
        ("05-x.toml", GOOD.replace('source = "{}"', ""), "edit 1: an edit needs the option source"),
    ],
)
def test_a_wrong_file_is_told_in_one_line(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(SettingsError) as problem:
        read_mends(tmp_path)
    assert message in str(problem.value)
    assert "\n" not in str(problem.value)


def test_two_mends_of_one_finding_are_refused(tmp_path: Path) -> None:
    for name in ("05-x.toml", "05-y.toml"):
        (tmp_path / name).write_text(GOOD)
    with pytest.raises(SettingsError, match="two mends of finding 5"):
        read_mends(tmp_path)


# The choice.


@pytest.mark.parametrize(("texts", "found"), [(["16,5"], [5, 16]), (["5", "05", "16"], [5, 16])])
def test_mends_are_chosen_by_id(texts: Sequence[str], found: Sequence[int]) -> None:
    assert [mend.id for mend in choose(texts, ["rocketmq 5.5.0"])] == found


def test_only_mends_of_clients_are_for_applications() -> None:
    assert client_argv("remoting", [5, 89]) == [apply.option(apply.ON_NODE, "5.5.0-clients")]
    assert client_argv("remoting", [5]) == []
    assert client_argv("grpc-push", [89]) == []  # another client
    assert client_argv("remoting", [89], "5.1.0") == []  # the mend is not for this version


def client_argv(library: Library, numbers: Sequence[int], version: str = "5.5.0") -> list[str]:
    argv = JavaProgram(version, library, mends=numbers).argv
    return [word for word in argv if word.startswith("-javaagent")]


def test_all_are_those_for_the_version() -> None:
    chosen = [mend.id for mend in choose(["all"], ["rocketmq 5.5.0"])]
    assert {5, 37} <= set(chosen)
    assert not {7, 10, 13} & set(chosen)  # for 5.3.3, and for DLedger
    assert chosen == sorted(chosen)


@pytest.mark.parametrize(
    ("texts", "versions", "message"),
    [
        (["99"], ["rocketmq 5.5.0"], "--mend 99: there is no such mend"),
        (["5,all"], ["rocketmq 5.5.0"], "--mend all: there is no such mend"),
        (["x"], ["rocketmq 5.5.0"], "--mend x: there is no such mend"),
        (["13"], ["rocketmq 5.5.0"], "--mend 13: it is for dledger 0.4.0, and the servers are rocketmq 5.5.0"),
        (["all"], ["rocketmq 5.0.0"], "--mend all: there is no mend for rocketmq 5.0.0"),
        (["5"], [], "the servers are of a version that is not known"),
    ],
)
def test_a_wrong_choice_is_told(texts: Sequence[str], versions: Sequence[str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        choose(texts, versions)


def own(folder: Path, name: str = "2001-x.toml", text: str = GOOD) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_a_file_of_a_user_is_a_mend_alone_and_beside_others(tmp_path: Path) -> None:
    file = own(tmp_path)
    assert [mend.text for mend in choose([f"5,{file}"], ["rocketmq 5.5.0"])] == ["5", file]
    chosen = choose(["all", file], ["rocketmq 5.5.0"])
    assert chosen[:-1] == choose(["all"], ["rocketmq 5.5.0"])
    assert chosen[-1].id == 2001
    assert numbers([mend.text for mend in chosen]) == [mend.id for mend in chosen]
    assert applied([2001], "5.5.0") == [chosen[-1]]
    assert not applied([2001], "5.4.0")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("2002-x.toml", GOOD.replace("5.5.0", "5.4.0"), "it is for rocketmq 5.4.0, and the servers are rocketmq 5.5.0"),
        ("05-x.toml", GOOD, "5 has the id 5 too; another number is right"),
        ("x.toml", GOOD, "a mend's file is named NN-NAME.toml"),
        ("2003-x.toml", f"{GOOD}\n[mutant]\ndepth = 'd'\n", "2003-x.toml: mutant"),
    ],
)
def test_a_wrong_file_of_a_user_is_refused(name: str, text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=message):
        choose([own(tmp_path, name, text)], ["rocketmq 5.5.0"])


def test_a_file_that_is_not_there_is_refused_and_so_are_two_with_one_id(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        choose([str(tmp_path / "2004-x.toml")], ["rocketmq 5.5.0"])
    files = [own(tmp_path, "2005-x.toml"), own(tmp_path, "2005-y.toml")]
    with pytest.raises(SettingsError, match=r"2005-x\.toml has the id 2005 too"):
        choose(files, ["rocketmq 5.5.0"])


def test_a_plan_keeps_the_file_of_a_mend(tmp_path: Path) -> None:
    file = own(tmp_path, "2006-x.toml")
    plan = resolve(Plan(workload="log", server=ServerPlan(mends=(file, "5"))))
    assert plan.server.mends == ("5", file)
    assert resolve(Plan.from_dict(plan.to_dict())).to_dict() == plan.to_dict()


def test_a_plan_keeps_its_mends() -> None:
    plan = resolve(Plan(workload="log", server=ServerPlan(mends=("16,5",))))
    assert plan.server.mends == ("5", "16")
    assert resolve(Plan.from_dict(plan.to_dict())).to_dict() == plan.to_dict()
    assert "mends" not in Plan().to_toml()


def test_the_record_of_a_deployment_keeps_its_mends() -> None:
    record = DeploymentRecord("t", {"n1": ""}, [ServerRecord("n1", "broker", mends=(5, 16)), ServerRecord("n1", "x")])
    assert DeploymentRecord.from_json(record.to_json()).servers == record.servers


# The agent.

TOY = """
package toy;

public class Toy {
    private int secret = 7;

    int sum(int a, int b) { return Math.max(a, b) + Math.abs(b); }
    int same(int a) { return a; }
    int same(long a) { return (int) a; }
    int boom() { throw new IllegalStateException("unmended"); }

    class Inner { int own() { return 1; } }

    public static void main(String[] args) throws Exception {
        Toy toy = new Toy();
        int own = toy.new Inner().own();
        System.out.println(toy.sum(2, -3) + " " + toy.same(1) + " " + toy.same(1L) + " " + toy.boom() + " " + own);
    }
}
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the agent, and `toy.Toy` in `classes` there."""
    folder = tmp_path_factory.mktemp("toy")
    for path in apply.share([], []).source.glob("*.jar"):
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "Toy.java").write_text(TOY)
    subprocess.run(["javac", "-d", str(folder / "classes"), str(folder / "Toy.java")], check=True, timeout=120)
    return folder


def run_toy(folder: Path, *edits: Edit) -> subprocess.CompletedProcess[str]:
    (folder / "x.orders").write_bytes(properties(orders([Mend(5, "x", "", "", (), edits)], "x")))
    argv = ["java", apply.option(str(folder), "x"), "-cp", str(folder / "classes"), "toy.Toy"]
    return subprocess.run(argv, check=False, capture_output=True, text=True, timeout=120)


BOOM = Edit("toy.Toy.boom", "body", "{ return 0; }")


@pytest.mark.slow
def test_the_agent_edits_methods_and_says_so(toy: Path, tmp_path: Path) -> None:
    file = tmp_path / "term"
    file.write_text("old")
    done = run_toy(
        toy,
        BOOM,
        Edit("toy.Toy.sum", "call", "{ $_ = $proceed($$) * 100; }", call="java.lang.Math.max"),
        Edit("toy.Toy.same", "after", "{ $_ = $_ + 40; }", descriptor="(J)I"),
        Edit("toy.Toy.main", "before", f'{{ harness.mends.Durable.write("new", "{file}"); }}'),
        Edit("toy.Toy$Inner.own", "body", "{ return this.this$0.secret; }"),  # a private field of the class around it
    )
    said = done.stderr.splitlines()
    assert done.stdout == "203 1 41 0 7\n", said
    assert [line.split(" ", 2)[2] for line in said] == [
        f"mend 5 applied to toy.Toy{method}" for method in (".boom", ".sum", ".same", ".main", "$Inner.own")
    ]
    assert file.read_text() == "new"
    assert (tmp_path / "term.bak").read_text() == "old"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (Edit("toy.Toy.gone", "body", "{}"), "mend 5: there is no toy.Toy.gone"),
        (Edit("toy.Gone.sum", "body", "{}"), "mend 5: there is no toy.Gone.sum"),
        (Edit("toy.Toy.sum", "call", "{}", call="java.lang.Math.min"), "it does not call java.lang.Math.min"),
        (Edit("toy.Toy.sum", "before", "{ nonsense }"), "mend 5: toy.Toy.sum: "),
        (Edit("toy.Toy.same", "body", "{ return 1; }"), "2 methods have this name"),
    ],
)
@pytest.mark.slow
def test_a_server_with_a_mend_that_does_not_apply_does_not_start(edit: Edit, message: str, toy: Path) -> None:
    done = run_toy(toy, BOOM, edit)
    assert done.returncode == 70
    assert message in done.stderr
    assert "applied to" not in done.stderr.replace("not applied", "")


def jars(version: str) -> Path:
    return fetch_jars(dledger.POM, dledger.LOCK) if version == dledger.VERSION else artifacts.fetch(version)


@pytest.mark.parametrize(
    "version",
    [
        dledger.VERSION,
        artifacts.DEFAULT_VERSION,
        # Jars that the set-up does not fetch.
        *(pytest.param(version, marks=[pytest.mark.slow, pytest.mark.nightly]) for version in ("5.3.3", "5.4.0")),
    ],
)
@pytest.mark.slow
def test_all_mends_apply_to_the_published_jars(version: str) -> None:
    made = apply.share([mend.id for mend in mends()], [version])
    apply.check(made.source, version, [jars(version)])
    assert (made.source / f"{version}.orders").stat().st_size > 0


def test_a_build_to_which_a_mend_does_not_apply_is_told_before_the_run() -> None:
    """The orders for RocketMQ, put to the jars of DLedger."""
    made = apply.share([5], ["5.5.0"])
    with pytest.raises(
        SettingsError, match=r"servers of version 5\.5\.0: mends not applied: .*there is no org\.apache"
    ):
        apply.check(made.source, "5.5.0", [jars(dledger.VERSION)])


# What a server is asked.


class _Server:
    """A server whose log has these lines."""

    log, mends = "/log", (5, 16)

    def __init__(self, text: str) -> None:
        self.node: Any = self
        self.text = text

    def run(self, argv: Sequence[str], *, check: bool = True) -> _Server:
        return self

    def __repr__(self) -> str:
        return "n1 broker"


def test_a_server_that_does_not_say_that_it_is_mended_is_refused() -> None:
    line = "2026-11-23 02:18:23.605 mend 5 applied to a.B.c\n"
    with pytest.raises(InfraError, match="n1 broker: mend 16 was not applied"):
        apply.require_applied(_Server(line))
    apply.require_applied(_Server(line + line.replace("mend 5", "mend 16")))
