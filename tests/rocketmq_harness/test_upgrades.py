# SPDX-License-Identifier: Apache-2.0
"""The suite of upgrades has every pair, up and back, and its table says what each run lost."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

from harness.findings.pages import replaced
from harness.nightly.matrix import read_matrix
from infra.systems.rocketmq.servers.artifacts import VERSIONS
from results.history import History
from results.op import NEMESIS, Op
from results.reading import read_json
from results.record import RunRecord
from rocketmq_harness.certify.sheet import Run
from rocketmq_harness.upgrades import PAGE, RECORD, Upgrade, _turns, _way, counts, read_added, table

ROOT = Path(__file__).parents[2]
TOPOLOGIES = ("controller", "dledger-commitlog", "master-slave", "slave-acting-master")


def test_the_suite_has_every_pair_up_and_back_on_each_topology() -> None:
    """An upgrade to the version of the start would be valid, and prove nothing."""
    cells = read_matrix(ROOT / "examples" / "suites" / "upgrades.toml").cells
    found = []
    for cell in cells:
        way = [word.removeprefix("to=") for word in cell.nemesis.split() if word.startswith("to=")]
        assert way[1::2] == [cell.version] * (len(way) // 2)
        found += [(cell.topology, cell.version, up) for up in way[::2]]
    assert sorted(found) == sorted((t, a, b) for t in TOPOLOGIES for a, b in combinations(VERSIONS, 2))


def test_a_run_has_its_versions_from_its_plan() -> None:
    plan = {"server": {"version": "5.3.3"}, "nemesis": [{"fault": "rolling-upgrade", "to": ["5.5.0", "5.3.3"]}]}
    assert _way(RunRecord(History(()), plan=plan)) == ["5.3.3", "5.5.0", "5.3.3"]


def test_a_run_says_how_many_servers_had_their_turn() -> None:
    """A run whose time was over before the way back proves nothing of it."""
    value = {"fault": "rolling-upgrade", "id": 1, "evidence": {"n1": "9 of 18 restarted; n1 namesrv 70 ended in 0.1 s"}}
    steps = [("inject", "invoke"), ("inject", "info"), ("heal", "invoke"), ("heal", "info")]
    ops = [Op(i, i, NEMESIS, "info" if t == "info" else "invoke", f, value=value) for i, (f, t) in enumerate(steps)]
    assert _turns(RunRecord(History(ops))) == "9 of 18"


def test_the_table_has_a_row_for_each_run_in_the_order_of_versions() -> None:
    """A run that could not be judged has its reason, and no number."""
    rows = [
        Upgrade("2", "controller", ["5.10.0", "5.11.0"], "unknown", Run("b", why="tried too little: nothing")),
        Upgrade(
            "1",
            "controller",
            ["5.3.3", "5.5.0"],
            "invalid",
            Run("a", lost=3, acknowledged=9_000, silence_s=4.25, known=[5]),
            "12 of 12",
            ["7", "12"],
        ),
    ]
    lines = table(rows)[2:]
    assert lines == [
        "| controller | 5.3.3 -> 5.5.0 with `--mend 7,12` | 12 of 12 | invalid | 3 of 9,000 | 4.2 s | 5 | - |",
        "| controller | 5.10.0 -> 5.11.0 | - | unknown | tried too little: nothing | - | - | - |",
    ]
    page = (ROOT / "docs" / PAGE).read_text()
    assert "5.10.0 -> 5.11.0" in replaced(page, "\n".join(lines))


def test_a_run_counts_for_each_of_its_versions() -> None:
    """A run that decided nothing counts for none, and neither does one on mended servers: operators have others."""
    way = ["5.1.0", "5.2.0", "5.1.0"]
    good, silent = Run("a", silence_s=4.2), Run("b", silence_s=30.5, broken={"kept": {"lost": 3}})
    found = counts(
        [
            *(Upgrade("1", "controller", way, "x", run) for run in (good, silent, Run("c", why="tried too little"))),
            Upgrade("2", "controller", way, "x", Run("d", silence_s=1.0), "18 of 18", ["7"]),
        ]
    )
    assert set(found) == {"kept", "true", "copies", "silence of at most 30 s"}
    for version in ("5.1.0", "5.2.0"):
        kind = f"{version} controller rolling-upgrade"
        assert found["kept"][kind] == {"held": 1, "runs": 2}
        assert found["true"][kind] == {"held": 2, "runs": 2}
        assert found["silence of at most 30 s"][kind] == {"held": 1, "runs": 2}


def test_the_record_and_its_tables_agree() -> None:
    """The counts for operators and the page are made from the runs of the record."""
    found = read_added().values()
    assert read_json(RECORD)["tallies"] == counts(found)
    assert "\n".join(table(found)) in (ROOT / "docs" / PAGE).read_text()
