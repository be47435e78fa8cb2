"""Plans: every option round-trips through TOML; wrong input is one clear line."""

from pathlib import Path

import pytest

from harness.plan.plan import ClusterPlan, NemesisPlan, Plan, PlanError, ServerPlan, seconds

FULL = Plan(
    seed=7,
    time_limit_s=0.123456789,
    rate=12.5,
    concurrency=3,
    read_mode="unsafe",
    snapshot=True,
    cluster=ClusterPlan("ssh", 3, ("a", "root@b:2222", "c"), "key", "debian:12", True, True),
    client="native",
    consume="pop",
    ground_truth=True,
    server=ServerPlan("controller", "strict", "jraft", 3, "5.5.0", "lib", ("-ea",), {"broker.a": "500"}),
    nemeses=(NemesisPlan("hammer-time", 30, 12.5, "leader"), NemesisPlan("bridge")),
)


@pytest.mark.parametrize("plan", [Plan(), FULL, Plan(nemeses=())])
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
        ("sed = 3", "unknown key 'sed'; did you mean 'seed'?"),
        ("seed = 'x'", "seed is 'x'; a value of type int"),
        ("time_limit = 'soon'", "time_limit is 'soon'; a duration"),
        ("[cluster]\nnodes = 0", "nodes is 0; 1 to 50"),
        ("[[nemesis]]\nevery = 5", "nemesis 1 names no fault"),
        ("[[nemesis]]\nfault='x'\nevery=5\nfor=5", "leaves no time between"),
        ("seed = ", "not a plan in TOML"),
        ("read_mode = 'fast'", "log or unsafe is right"),
        ("client = 'java'", "client is 'java'; remoting or native or grpc is right"),
        ("consume = 'push'", "consume is 'push'; pull or pop is right"),
        ("[server]\ncontroller_type = 'zab'", "controller_type is 'zab'; dledger or jraft or"),
        ("[server]\nbrokers = 6", "brokers is 6; 1 to 5, as many as there are nodes is right"),
        ("[server]\nprofil = 'strict'", "server: unknown key 'profil'; did you mean 'profile'?"),
        ("nemesis = 3", r"write \[\[nemesis\]\]"),
    ],
)
def test_what_is_wrong_is_said(toml: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(toml)
    with pytest.raises(PlanError, match=said) as told:
        Plan.read(path)
    assert "\n" not in str(told.value).replace("(at", "")


def test_streams_are_independent_and_repeatable() -> None:
    assert Plan(seed=3).rng("a").random() == Plan(seed=3).rng("a").random()
    assert Plan(seed=3).rng("a").random() != Plan(seed=3).rng("b").random()
    assert Plan(seed=3).rng("a").random() != Plan(seed=4).rng("a").random()


@pytest.mark.parametrize(("text", "value"), [("90s", 90), ("1.5m", 90), (2, 2), ("250ms", 0.25), ("1h", 3600)])
def test_durations(text: object, value: float) -> None:
    assert seconds(text, "x") == value
