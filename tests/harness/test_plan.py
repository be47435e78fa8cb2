# SPDX-License-Identifier: Apache-2.0
"""Plans: every option round-trips through TOML; wrong input is one clear line."""

import re
from pathlib import Path

import pytest

from harness.cli.run import run as run_command
from harness.parts import registry
from harness.parts.resolve import resolve
from harness.plan.plan import ClusterPlan, NemesisPlan, Plan, PlanError, ServerPlan, ServerRule
from harness.run import lifecycle
from infra.options import seconds
from results.strikes import Strike

FULL = Plan(
    seed=7,
    time_limit_s=0.123456789,
    rate=12.5,
    concurrency=3,
    cluster=ClusterPlan("ssh", 3, {"hosts": ["a", "root@b:2222", "c"], "ssh_key": "key", "install": True}),
    client="native",
    options={"consume": "pop", "ground_truth": True},
    server=ServerPlan(
        "controller",
        "strict",
        "5.5.0",
        "lib",
        ("-ea",),
        {"broker.a": "500"},
        (ServerRule(("n2",), ("broker",), "5.4.0", "own", ("-da",), {"LD_PRELOAD": "f.so"}, ("faketime", "+1s")),),
        {"controller_type": "jraft", "brokers": 3},
    ),
    nemeses=(NemesisPlan("hammer-time", 30, 12.5, "leader"), NemesisPlan("bridge", options={"delay": "5s"})),
)
STRUCK = Plan(
    nemeses=(),
    strikes=(
        Strike(1, "bridge", "n1", 5.0, 7, at_s=3.5),
        Strike(2, "hammer-time", "master", 2.0, after="role-changed:a", delay_s=0.5, within_s=30.0, options={"x": 1}),
    ),
)


EXAMPLES = Path(__file__).parents[2] / "examples" / "plans"


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.toml")), ids=lambda path: path.stem)
def test_every_example_is_a_plan(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command.main(["--plan", str(path), "--dry-run"], standalone_mode=False) is None
    assert "workload = " in capsys.readouterr().out


@pytest.mark.parametrize("plan", [Plan(), FULL, STRUCK, Plan(nemeses=())])
def test_round_trip(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(plan.to_toml())
    assert Plan.read(tmp_path / "plan.toml") == plan


def test_settings_may_be_nested_or_dotted(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text('[server]\nset.dledger.a = 5\nset."dledger.b" = true\n')
    assert Plan.read(path).server.settings == {"dledger.a": "5", "dledger.b": "true"}


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ("sed = 3", "workload 'log' has no option --sed; leave it out"),
        ("seed = 'x'", "seed is 'x'; a value of type int"),
        ("time_limit = 'soon'", "time_limit is 'soon'; a duration"),
        ("[cluster]\nnodes = 0", "nodes is 0; 1 to 50"),
        ("[[nemesis]]\nevery = 5", "nemesis 1 names no fault"),
        ("[[nemesis]]\nfault='x'\nevery=5\nfor=5", "leaves no time between"),
        ("seed = ", "not a plan in TOML"),
        ("workload = 'register'\nread_mode = 'fast'", "log or unsafe is right"),
        ("read_mode = 'unsafe'", "workload 'log' has no option --read-mode; it is an option of the workload register"),
        ("client = 'java'", "no client 'java'; --client remoting or native or grpc is right"),
        ("workload = 'queue'\nconsume = 'push'", "consume is 'push'; pull or pop is right"),
        ("[server]\ncontroller_type = 'zab'", "controller_type is 'zab'; dledger or jraft or"),
        ("[server]\nprofil = 'strict'", "the topology 'controller' has no option 'profil'"),
        ("[[server.on]]\nversio = 'x'", "on 1: unknown key 'versio'; did you mean 'version'?"),
        ("[[strike]]\ntarget = 'one'", 'strike 1 names no fault; a line such as fault = "partition-halves" is right'),
        ("[[strike]]\nfault = 'bridge'\ntarget = 'n1'", "strike 1 has no start"),
        ("[[strike]]\nfault='bridge'\ntarget='n1'\nat=1\n[[nemesis]]\nfault='bridge'", "it cannot have a [[nemesis]]"),
        ("nemesis = 3", "write [[nemesis]]"),
    ],
)
def test_what_is_wrong_is_said(toml: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(toml)
    with pytest.raises(PlanError, match=re.escape(said)) as text:
        resolve(Plan.read(path))
    assert "\n" not in str(text.value).replace("(at", "")


def test_streams_are_independent_and_repeatable() -> None:
    assert Plan(seed=3).rng("a").random() == Plan(seed=3).rng("a").random()
    assert Plan(seed=3).rng("a").random() != Plan(seed=3).rng("b").random()
    assert Plan(seed=3).rng("a").random() != Plan(seed=4).rng("a").random()


@pytest.mark.parametrize(("text", "value"), [("90s", 90), ("1.5m", 90), (2, 2), ("250ms", 0.25), ("1h", 3600)])
def test_durations(text: object, value: float) -> None:
    assert seconds(text, "x") == value


def test_nothing_of_a_resolved_plan_is_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan was resolved twice before a run, and each step asked for the class of a name again."""
    nemeses = (NemesisPlan("packet-delay", options={"by": "20ms"}), NemesisPlan("partition-random-halves"))
    plan = resolve(Plan(workload="route", cluster=ClusterPlan("local"), nemeses=nemeses))

    def no_more(group: str, name: str) -> registry.PlugIn:
        raise AssertionError(f"{group}: {name}")

    monkeypatch.setattr(registry, "find", no_more)
    parts = lifecycle.check(plan)
    assert [fault.name for fault in parts.faults] == ["packet-delay", "partition-halves"]
    assert parts.fault(next(s for s in parts.strikes if s.fault == "partition-halves")) in list(parts.faults)
    assert (parts.topology.name, plan.server.topology) == (plan.chosen.topology.plugin.name, parts.topology.name)
