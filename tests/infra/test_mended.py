# SPDX-License-Identifier: Apache-2.0
"""Mends at work: classes of the published jars, as they are and with the agent, in a JVM without a cluster."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import pytest

from infra.systems.dledger import server as dledger
from infra.systems.java import options
from infra.systems.maven import compile_jar, fetch_jars
from infra.systems.mends import apply
from infra.systems.rocketmq import applications
from infra.systems.rocketmq.applications.java import grpc_jars
from infra.systems.rocketmq.servers import artifacts
from infra.systems.rocketmq.servers.jvm import COMMON

SOURCES = Path(__file__).parent / "mended"
APPLICATION = Path(applications.__file__).parent

pytestmark = pytest.mark.slow  # seconds of a JVM each

Run = Callable[[str, Sequence[str], Sequence[int]], list[str]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a class of `mended/` with arguments and mends, on RocketMQ's jars; the lines that it prints itself."""
    version = artifacts.DEFAULT_VERSION
    return _runner(SOURCES, artifacts.fetch(version), version, COMMON, tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="module")
def run_dledger(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same with `mended_dledger/`, on DLedger's jars."""
    jars, folder = fetch_jars(dledger.POM, dledger.LOCK), tmp_path_factory.mktemp("classes")
    opens = [option for option in options("gc.log") if option.startswith("--add-opens")]
    return _runner(SOURCES.with_name("mended_dledger"), jars, dledger.VERSION, opens, folder)


@pytest.fixture(scope="module")
def run_5_3_3(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same with `Metrics` and `Ahead`, on the jars of RocketMQ 5.3.3."""
    jars, folder = artifacts.fetch("5.3.3"), tmp_path_factory.mktemp("classes")
    return _runner(SOURCES, jars, "5.3.3", COMMON, folder, ["Metrics.java", "Ahead.java"])


@pytest.fixture(scope="module")
def run_5_4_0(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same with `Offsets`, on the jars of RocketMQ 5.4.0."""
    jars, folder = artifacts.fetch("5.4.0"), tmp_path_factory.mktemp("classes")
    return _runner(SOURCES, jars, "5.4.0", COMMON, folder, ["Offsets.java"])


@pytest.fixture(scope="module")
def run_5_2_0(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same with `Committed`, on the jars of RocketMQ 5.2.0."""
    jars, folder = artifacts.fetch("5.2.0"), tmp_path_factory.mktemp("classes")
    return _runner(SOURCES, jars, "5.2.0", COMMON, folder, ["Committed.java", "Log.java"])


@pytest.fixture(scope="module")
def run_5_1_0(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The same with `mended_5_1_0/`, on the jars of RocketMQ 5.1.0."""
    jars, folder = artifacts.fetch("5.1.0"), tmp_path_factory.mktemp("classes")
    return _runner(SOURCES.with_name("mended_5_1_0"), jars, "5.1.0", COMMON, folder)


def _runner(
    sources: Path, jars: Path, version: str, own: Collection[str], classes: Path, names: Sequence[str] = ()
) -> Run:
    """`names`: the files to compile; none: all of `sources`."""
    files = [str(sources / name) for name in names] or [str(path) for path in sources.glob("*.java")]
    subprocess.run(["javac", "-cp", f"{jars}/*", "-d", str(classes), *files], check=True, timeout=120)

    def run(name: str, args: Sequence[str], mends: Sequence[int]) -> list[str]:
        agent = [apply.option(str(apply.share(mends, [version]).source), version)] if mends else []
        argv = ["java", "-XX:TieredStopAtLevel=1", *own, *agent, "-cp", f"{classes}:{jars}/*", name, *args]
        done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=120)
        assert done.stdout, done.stderr
        return done.stdout.splitlines()

    return run


@pytest.mark.parametrize(("mends", "end"), [([], "100000 1000"), ([37], "60000 600")])
@pytest.mark.nightly
def test_a_truncated_tail_returns_at_a_restart_unless_it_is_cleared(
    mends: Sequence[int], end: str, run: Run, tmp_path: Path
) -> None:
    assert run("Log", [str(tmp_path), "write"], mends)[-1] == "end 60000 600"
    assert run("Log", [str(tmp_path), "read"], mends)[-1] == f"end {end}"


@pytest.mark.parametrize(("mends", "messages"), [([], 100), ([67], 60)])
@pytest.mark.nightly
def test_a_start_after_a_crash_builds_queues_of_entries_that_are_not_committed_unless_mended(
    mends: Sequence[int], messages: int, run: Run, tmp_path: Path
) -> None:
    assert run("Committed", [str(tmp_path), "write"], mends)[-1] == "messages 100"
    shutil.rmtree(tmp_path / "consumequeue")
    assert run("Committed", [str(tmp_path), "read"], mends)[-1] == f"messages {messages}"


@pytest.mark.parametrize(
    ("mends", "messages"),
    [
        ([], 0),
        ([12], 0),
        ([12, 70], 100),  # 70 alone: the heads are not counted, and a part of the queue is cut off
    ],
)
@pytest.mark.nightly
def test_a_start_of_5_2_0_after_a_crash_deletes_the_queues_unless_mended(
    mends: Sequence[int], messages: int, run_5_2_0: Run, tmp_path: Path
) -> None:
    """Messages with properties and without `duplicationEnable`: the first one is taken for the end of the log."""
    assert run_5_2_0("Committed", [str(tmp_path), "write", "k\x01v\x02"], mends)[-1] == "messages 100"
    assert run_5_2_0("Committed", [str(tmp_path), "read"], mends)[-1] == f"messages {messages}"


@pytest.mark.parametrize(
    ("tables", "mends", "read"),
    [
        ("offsetTable", [], "{t@g={0=41}}"),
        ("offsetTable,pullOffsetTable", [], "not support unquoted name"),
        ("offsetTable,pullOffsetTable", [74], "{t@g={0=41}}"),
    ],
)
@pytest.mark.nightly
def test_a_broker_of_5_4_0_does_not_read_the_offsets_of_5_5_0_unless_mended(
    tables: str, mends: Sequence[int], read: str, run: Run, run_5_4_0: Run, tmp_path: Path
) -> None:
    """5.5.0 writes the offsets of pulls as well; it reads its own file."""
    file = str(tmp_path / "consumerOffset.json")
    assert run("Offsets", [file, tables], [])[-1] == "written"
    assert run_5_4_0("Offsets", [file, "read"], mends)[-1] == read
    assert run("Offsets", [file, "read"], [])[-1] == "{t@g={0=41}}"


@pytest.mark.parametrize(("mends", "read"), [([], "30, then 60"), ([69], "30, then 30")])
@pytest.mark.nightly
def test_a_slave_that_lost_its_connection_is_not_waited_for_by_5_1_0_unless_mended(
    mends: Sequence[int], read: str, run_5_1_0: Run, tmp_path: Path
) -> None:
    assert run_5_1_0("Confirm", [str(tmp_path)], mends)[-1] == read


@pytest.mark.parametrize(
    ("mends", "kept", "timers"),
    [
        ([], 15, "10, 10"),  # the log has half of the second slot's timers: that slot is corrected
        ([], 10, "10, no end"),
        ([], 5, "10, no end"),
        ([68], 15, "10, 10"),
        ([68], 10, "10, 10"),
        ([68], 5, "10, 10"),
    ],
)
@pytest.mark.nightly
def test_a_slot_whose_timers_are_all_lost_leads_into_a_circle_unless_mended(
    mends: Sequence[int], kept: int, timers: str, run: Run, tmp_path: Path
) -> None:
    """Of the wheel's slots, a start corrects those that begin within the timer's log."""
    first = str((int(time.time()) + 600) * 1000)
    assert run("Wheel", [str(tmp_path), "write", str(kept), first], [])[-1] == "written"
    assert run("Wheel", [str(tmp_path), "read", str(kept), first], mends)[-1] == timers


@pytest.mark.parametrize(("mends", "messages"), [([], 10), ([48], 9)])
@pytest.mark.nightly
def test_a_start_takes_a_message_with_torn_properties_unless_mended(
    mends: Sequence[int], messages: int, run: Run, tmp_path: Path
) -> None:
    assert run("Torn", [str(tmp_path), "write"], mends)[-1] == "messages 10"
    assert run("Torn", [str(tmp_path), "read"], mends)[-1] == f"messages {messages}"


@pytest.mark.parametrize("mends", [[], [63]])
def test_a_start_ends_where_the_counts_of_the_timer_and_their_backup_are_zeros(
    mends: Sequence[int], run_5_3_3: Run, tmp_path: Path
) -> None:
    """The mend keeps the form of both files, so that they no longer become zeros is for a failure of power to show."""
    assert run_5_3_3("Metrics", [str(tmp_path)], mends) == ["counts 6, counts 3, no start"]


@pytest.mark.parametrize(("mends", "expected"), [([], "leads in term 1"), ([66], "stands for term 2")])
def test_a_leader_does_not_hear_of_a_higher_term_while_it_has_a_majority_unless_mended(
    mends: Sequence[int], expected: str, run_5_3_3: Run, tmp_path: Path
) -> None:
    assert run_5_3_3("Ahead", [str(tmp_path)], mends)[-1] == expected


def test_a_leader_of_5_5_0_hears_of_a_higher_term(run: Run, tmp_path: Path) -> None:
    assert run("Ahead", [str(tmp_path)], [])[-1] == "stands for term 2"


@pytest.mark.parametrize(
    ("fails", "mends", "expected"),
    [
        ("queue", [], "stored, got 0 1 2 4 5"),
        ("queue", [55], "stored, got 0 1 2 3 4 5"),
        ("log", [], "stored, got 0 1 2 4 5"),
        ("log", [57], "refused, got 0 1 2 3 4"),
    ],
)
@pytest.mark.nightly
def test_a_write_that_the_disk_refuses_or_takes_in_part_loses_a_message_unless_mended(
    fails: str, mends: Sequence[int], expected: str, run: Run, tmp_path: Path
) -> None:
    assert run("Refused", [str(tmp_path), fails], mends)[-1] == expected


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        ("1", "1@0 then 1@10000, slaves go on from -1 of 10000"),
        ("2", "1@0 2@10000 then 1@0 2@20000, slaves go on from 10000 of 20000"),
    ],
)
def test_a_master_that_begins_an_epoch_again_takes_it_from_the_slaves(
    epoch: str, expected: str, run: Run, tmp_path: Path
) -> None:
    assert run("Epochs", [str(tmp_path), epoch], [])[-1] == expected


@pytest.mark.parametrize(
    ("mends", "expected"),
    [
        ([], "1@0 2@10000, 1@0 2@10000 to 15000 goes on from 15000"),
        ([65], "1@0 3@10000, 1@0 2@10000 to 15000 goes on from 10000"),
    ],
)
def test_an_election_after_an_epoch_without_messages_begins_no_epoch_unless_mended(
    mends: Sequence[int], expected: str, run: Run, tmp_path: Path
) -> None:
    assert run("Idle", [str(tmp_path)], mends)[-1] == expected


@pytest.mark.parametrize(
    ("mends", "needed"),
    [
        ([], "[3, 4], [2, 3], [2, 3, 5], read 20000 of 20000"),
        ([59], "[2, 3, 4], [2, 3], [2, 3, 5], read 10000 of 20000"),
    ],
)
def test_a_proposed_set_without_an_answer_is_forgotten_unless_mended(
    mends: Sequence[int], needed: str, run: Run, tmp_path: Path
) -> None:
    assert run("Proposals", [str(tmp_path)], mends)[-1] == needed


@pytest.mark.parametrize(
    ("mends", "agreed"),
    [
        ([], "[2, 3] [3, 4] [2, 3] [3, 4] [2, 3] [3, 4] [2, 3, 4]"),
        ([61], "[2, 3] [2, 3, 4]"),
    ],
)
def test_proposals_that_wait_drop_slaves_from_the_set_unless_mended(
    mends: Sequence[int], agreed: str, run: Run, tmp_path: Path
) -> None:
    assert run("Unsettled", [str(tmp_path)], mends)[-1] == agreed


@pytest.mark.parametrize(("mends", "elections"), [([], "nothing, b, nothing"), ([71], "nothing, nothing, b")])
def test_a_scan_wants_elections_for_groups_with_a_healthy_master_unless_mended(
    mends: Sequence[int], elections: str, run: Run
) -> None:
    """While all brokers send heartbeats, while a slave does not, and while the master does not."""
    assert run("Scan", [], mends)[-1] == elections


@pytest.mark.parametrize(("mends", "second"), [([], "[killed, moves, moves, stays]"), ([85], "[moves, moves, stays]")])
def test_a_proxy_names_a_consumer_that_was_killed_at_another_one_unless_mended(
    mends: Sequence[int], second: str, run: Run, tmp_path: Path
) -> None:
    """And it names a consumer twice that came from a killed proxy (finding 95), which 85 does not mend."""
    assert run("Gone", [str(tmp_path)], mends)[-1] == f"first: [stays], second: {second}"


@pytest.mark.parametrize(
    ("mends", "duration", "records"), [([], "8000", "0"), ([], "8001", "1"), ([87], "8000", "1"), ([87], "8001", "1")]
)
def test_a_popped_message_is_forgotten_whose_new_duration_ends_with_the_old_one_unless_mended(
    mends: Sequence[int], duration: str, records: str, run: Run, tmp_path: Path
) -> None:
    assert run("SameEnd", [str(tmp_path), duration], mends)[-1] == records


@pytest.mark.parametrize(("mends", "queues"), [([], "[0, 1, 2, 3, 4]"), ([83], "[0, 1]")])
def test_a_message_goes_back_to_a_queue_that_its_retry_topic_does_not_have_unless_mended(
    mends: Sequence[int], queues: str, run: Run, tmp_path: Path
) -> None:
    """The topic has two queues, and `retryQueueNums` is five since."""
    assert run("SentBack", [str(tmp_path)], mends)[-1] == queues


@pytest.mark.parametrize(
    ("mends", "handles", "renewed"),
    [([], "304", "304"), ([], "2000", "304"), ([84], "304", "304"), ([84], "2000", "2000")],
)
def test_a_proxy_renews_as_many_handles_as_its_pool_has_places_unless_mended(
    mends: Sequence[int], handles: str, renewed: str, run: Run, tmp_path: Path
) -> None:
    """Four threads and 300 places."""
    assert run("Renewals", [str(tmp_path), handles], mends)[-1] == renewed


@pytest.mark.parametrize(("mends", "renewed"), [([], "1 1 1"), ([80], "1 0 1"), ([80, 84], "1 0 1")])
def test_a_proxy_renews_for_a_client_whose_stream_has_ended_unless_mended(
    mends: Sequence[int], renewed: str, run: Run, tmp_path: Path
) -> None:
    """With the client's stream, after its end, and with a new one."""
    assert run("Ended", [str(tmp_path)], mends)[-1] == renewed


@pytest.mark.parametrize(("mends", "first"), [([], "8"), ([88], "5")])
def test_a_broadcast_consumer_begins_behind_what_came_after_its_start_unless_mended(
    mends: Sequence[int], first: str, run: Run, tmp_path: Path
) -> None:
    assert run("Begins", [str(tmp_path)], mends)[-1] == first


@pytest.mark.parametrize(
    ("mends", "unconsumed", "working", "moved", "committed"),
    [
        ([], "168", "0", "764", "764"),
        ([], "168", "1", "764", "764"),
        ([89], "168", "0", "764", "168"),
        ([89], "168", "1", "764", "168"),  # an orderly listener works on it
        ([89], "168", "0", "800", "168"),
        ([89], "765", "0", "764", "764"),  # all is consumed
    ],
)
def test_a_consumer_whose_pull_offset_is_moved_skips_its_cache_unless_mended(
    mends: Sequence[int], unconsumed: str, working: str, moved: str, committed: str, run: Run
) -> None:
    assert run("Moved", [unconsumed, working, moved], mends)[-1] == committed


def test_an_application_with_mends_of_clients_has_only_events_on_its_stdout() -> None:
    version, jars = artifacts.DEFAULT_VERSION, artifacts.fetch(artifacts.DEFAULT_VERSION)
    made = apply.share([5, 88, 89], [version]).source
    jar = compile_jar(APPLICATION, jars, "application", more=[grpc_jars()]) / "application.jar"
    argv = ["java", *apply.client_options([5, 88, 89], version, str(made)), "-cp", f"{jar}:{jars}/*"]
    done = subprocess.run(
        [*argv, "harness.client.Application"], check=True, capture_output=True, text=True, timeout=120, input=""
    )
    assert [json.loads(line)["event"] for line in done.stdout.splitlines()] == ["hello"]
    said = [line.split(" ", 2)[2].split(" applied to ")[0] for line in done.stderr.splitlines() if " applied" in line]
    assert said == ["mend 88", "mend 89"]  # 5 is of the servers


@pytest.mark.parametrize(
    ("mends", "found"), [([], "none, none, none, questions 1"), ([90], "none, 1.2.3.4:5, 1.2.3.4:5, questions 2")]
)
def test_a_proxy_does_not_find_a_broker_that_is_back_unless_mended(
    mends: Sequence[int], found: str, run: Run, tmp_path: Path
) -> None:
    assert run("Back", [str(tmp_path)], mends)[-1] == found


@pytest.mark.parametrize(
    ("mends", "master", "slave"),
    [
        ([], "1 in epoch 1, 1 in epoch 1", "1 in epoch 1, 1 in epoch 1"),
        ([49], "nobody, 1 in epoch 2", "1 in epoch 2, 1 in epoch 2"),
        ([25, 49], "nobody, 1 in epoch 2", "1 in epoch 2, 1 in epoch 2"),
    ],
)
def test_a_master_that_starts_again_is_in_the_same_epoch_unless_mended(
    mends: Sequence[int], master: str, slave: str, run: Run
) -> None:
    assert run("Again", [], mends) == ["first: 1 in epoch 1", f"master: {master}", f"slave: {slave}"]


def test_an_election_leaves_one_member_and_a_cleaning_no_group_unless_mended(run: Run) -> None:
    first = "1 gets [1] 1, the controllers have [1] 1"
    assert run("Group", [], []) == [first, "2 gets [2] 3, the controllers have [2] 3", "nobody", "next id 2"]
    assert run("Group", [], [25, 33]) == [
        first,
        "2 gets [2, 3] 4, the controllers have [2, 3] 4",
        "3 gets [3] 5, the controllers have [3] 5",
        "next id 6",
    ]


@pytest.mark.parametrize(("mends", "error"), [([], "SUCCESS"), ([38], "EIO")])
def test_a_snapshot_that_cannot_be_synced_is_a_good_one_unless_mended(
    mends: Sequence[int], error: str, run: Run, tmp_path: Path
) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    assert run("Snapshot", [str(good), "syncable"], mends) == ["JRaft gets: SUCCESS", "loaded: true"]
    assert run("Snapshot", [str(bad), "unsyncable"], mends) == [f"JRaft gets: {error}"]


@pytest.mark.parametrize(
    ("mends", "lines"),
    [
        ([], ["applied 300, snapshots 2", "again Fail to recover state machine"]),
        ([39], ["applied 300, snapshots 0", "again 300"]),
    ],
)
@pytest.mark.nightly
def test_a_controller_alone_loses_all_at_a_restart_unless_it_takes_no_snapshots(
    mends: Sequence[int], lines: Sequence[str], run: Run, tmp_path: Path
) -> None:
    assert run("Ledger", [str(tmp_path), "restart"], mends) == lines


@pytest.mark.parametrize(
    ("mends", "expected"),
    [([], "whole 27, taken 28, applied 54"), ([22], "whole 27, taken 27, applied 28")],
)
def test_a_torn_entry_stops_a_controller_unless_mended(
    mends: Sequence[int], expected: str, run: Run, tmp_path: Path
) -> None:
    assert run("Ledger", [str(tmp_path), "torn"], mends) == [expected]


@pytest.mark.parametrize(("mends", "applied"), [([], (10, 30, 60, 70)), ([40], (10, 20, 30, 35))])
def test_a_log_that_grows_is_applied_from_its_first_entry_each_time_unless_mended(
    mends: Sequence[int], applied: Sequence[int], run: Run, tmp_path: Path
) -> None:
    said = run("Ledger", [str(tmp_path), "catch-up"], mends)
    entries = (10, 20, 30, 36)
    assert said == [f"entries {n}, applied {count}" for n, count in zip(entries, applied, strict=True)]


@pytest.mark.parametrize(("mends", "late"), [([], "[c1]"), ([45], "no group")])
def test_a_heartbeat_behind_the_end_of_its_connection_makes_a_member_unless_mended(
    mends: Sequence[int], late: str, run: Run
) -> None:
    assert run("Members", [], mends) == [f"[c1], no group, {late}"] * 2


@pytest.mark.parametrize(
    ("mends", "damaged", "end"),
    [
        ([], ["500", "501"], "end 50000 500, got 500, right 500, found 0"),
        ([19], ["500", "501"], "end 100000 1000, got 998, right 998, found 0"),
        ([19], ["500", "999"], "end 99900 999, got 998, right 998, found 0"),  # the last one may be half of a write
    ],
)
@pytest.mark.nightly
def test_a_damaged_message_takes_the_ones_behind_it_along_unless_mended(
    mends: Sequence[int], damaged: Sequence[str], end: str, run: Run, tmp_path: Path
) -> None:
    assert run("Flipped", [str(tmp_path), "write", *damaged], mends)[-1] == "written"
    assert run("Flipped", [str(tmp_path), "read", *damaged], mends)[-1] == end


@pytest.mark.parametrize(
    ("mends", "damaged", "end"),
    [
        ([], "30", "end 99, entry 30: 94, votes REJECT_SMALL_LEDGER_END_INDEX ACCEPT"),
        # Three files become one; the member counted for the entries behind it, and votes for nobody without them.
        ([22], "30", "end 29, entry 30: INDEX_OUT_OF_RANGE, votes REJECT_SMALL_LEDGER_END_INDEX ACCEPT"),
        # A last entry may be half of a write, for which nobody has counted.
        ([22], "99", "end 98, entry 99: INDEX_OUT_OF_RANGE, votes ACCEPT ACCEPT"),
    ],
)
@pytest.mark.nightly
def test_a_damaged_entry_is_in_the_log_after_a_start_unless_mended(
    mends: Sequence[int], damaged: str, end: str, run_dledger: Run, tmp_path: Path
) -> None:
    assert run_dledger("Damaged", ["write", str(tmp_path)], mends) == ["end 99, entry 0: 0"]
    assert run_dledger("Damaged", ["flip", str(tmp_path), damaged], mends) == ["flipped"]
    for _ in range(2):  # what was cut does not come back
        assert run_dledger("Damaged", ["read", str(tmp_path), damaged], mends) == [end]


@pytest.mark.parametrize(("mends", "held"), [([], "6"), ([22], "DISK_ERROR")])
def test_an_entry_that_changes_while_the_member_runs_is_read_unless_mended(
    mends: Sequence[int], held: str, run_dledger: Run, tmp_path: Path
) -> None:
    run_dledger("Damaged", ["write", str(tmp_path)], mends)
    told = f"end 99, entry 70: {held}, votes REJECT_SMALL_LEDGER_END_INDEX ACCEPT"
    assert run_dledger("Damaged", ["late", str(tmp_path), "70"], mends) == [told]


@pytest.mark.nightly
def test_an_acting_master_hands_over_old_and_decided_half_messages_unless_mended(run: Run, tmp_path: Path) -> None:
    unread = [f"e{n}" for n in range(31, 40)]  # it reads 32 decisions
    handed_over = ["a", "b", "c", "c", "d", *unread]
    progress = "RMQ_SYS_TRANS_HALF_TOPIC=46"
    assert run("Halves", [str(tmp_path)], []) == [
        f"[{', '.join(handed_over)}]",
        f"{{{progress}, RMQ_SYS_TRANS_OP_HALF_TOPIC=32}}",
    ]
    assert run("Halves", [str(tmp_path)], [26]) == ["[c, d]", f"{{{progress}, RMQ_SYS_TRANS_OP_HALF_TOPIC=42}}"]
