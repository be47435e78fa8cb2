# SPDX-License-Identifier: Apache-2.0
"""States of replicas after the same entry: alike in good runs, and a difference that later writes cover is found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from checkers.servers.state_hashes import StateHashes
from results.history import History
from results.record import RunRecord
from results.verdict import CheckResult, Verdict


def judged(folder: Path, **logs: Sequence[str]) -> CheckResult:
    """Each node's log, a line a second."""
    paths = {}
    for node, lines in logs.items():
        paths[node] = [folder / node / "server.log"]
        paths[node][0].parent.mkdir()
        stamped = (f"2026-11-28 20:00:{i:02d}.000 INFO StateHash - {line}\n" for i, line in enumerate(lines))
        paths[node][0].write_text("".join(stamped))
    return StateHashes().check(RunRecord(History([]), environment={"started_at": "2026-11-28T20:00:00"}, logs=paths))


def test_replicas_with_the_same_states_are_silent_and_counted(tmp_path: Path) -> None:
    result = judged(
        tmp_path,
        n1=["[HASH] from=0 00000001 00000002 00000003", "[HASH] from=3 00000004"],
        n2=["[HASH] from=0 00000001 00000002", "[HASH] loaded=2 00000003", "[HASH] from=3 00000004"],
        n3=["[START] listening"],
    )
    assert (result.verdict, list(result.anomalies)) == (Verdict.VALID, [])
    assert result.stats == {"hashes": 8, "compared": 4, "loaded": 1}


def test_a_snapshot_that_claims_an_entry_more_than_it_holds_is_found_although_a_later_write_covers_it(
    tmp_path: Path,
) -> None:
    """240 such snapshots in a run of DLedger 0.4.0, and the verdict was `valid`."""
    result = judged(
        tmp_path,
        n1=["[HASH] from=0 00000001 00000002 00000003 00000004"],
        n2=["[HASH] from=0 00000001 00000002", "[HASH] loaded=2 00000002", "[HASH] from=3 00000004"],
        n3=["[HASH] from=0 00000001 00000002 00000003 00000004"],
    )
    assert result.verdict == Verdict.INVALID
    (found,) = result.anomalies
    assert (found.name, found.details["node"], found.details["count"]) == ("states-differ", "n2", 1)
    assert "n2 had another state than n1 after 1 entry, the first with index 2 at 00:01.0, after it had loaded" in str(
        found
    )


def test_a_node_that_differs_from_itself_after_a_restart_is_found(tmp_path: Path) -> None:
    result = judged(tmp_path, n1=["[HASH] from=0 00000001 00000002", "[HASH] from=0 00000001 0000000f"])
    assert [a.name for a in result.anomalies] == ["states-differ"]


@pytest.mark.parametrize("lines", [[], ["[HASH] from=0 00000001"], ["[HASH] from=x 1"], ["[HASH] from=0"]])
def test_without_two_states_to_compare_nothing_is_proven(tmp_path: Path, lines: Sequence[str]) -> None:
    assert judged(tmp_path, n1=lines).verdict == Verdict.UNKNOWN
    assert StateHashes.concerns(RunRecord(History([]))) is False
