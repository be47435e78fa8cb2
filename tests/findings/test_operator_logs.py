# SPDX-License-Identifier: Apache-2.0
"""`harness logs`: the lines of findings in logs that RocketMQ wrote for an operator."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from harness.cli.main import cli, guarded
from harness.findings import operator_logs
from harness.findings.operator_logs import Searched, search
from harness.findings.ordinary import ORDINARY
from harness.findings.patterns import compile_pattern, words_of
from harness.findings.record import Finding, read_findings
from results.reading import read_toml

FINDINGS = read_findings()
LINES = {int(number): lines for number, lines in read_toml(Path(__file__).with_name("log_lines.toml"))["lines"].items()}
WITH_LINE = [finding for finding in FINDINGS if operator_logs.has_line(finding)]

QUIET = """\
2026-11-03 12:00:58 INFO main - The broker[broker-a, 10.1.0.3:10911] boot success. by JSON
2026-11-03 12:00:59 INFO BrokerControllerScheduledThread1 - register broker[0]to name server 10.1.0.1:9876 OK
2026-11-03 12:01:00 INFO PullMessageServiceThread - pull request from 10.1.0.9:40110
2026-11-03 12:01:00 WARN SendMessageThread_1 - putMessage not in lock elapsed time(ms)=531, bodyLength=120
java.lang.IllegalStateException: another stack
\tat org.apache.rocketmq.store.CommitLog.asyncPutMessage(CommitLog.java:1)
2026-11-03 12:01:01 INFO AutoSwitchHAClient - AutoSwitchHAClient connect to master 10.1.0.2:10912
2026-11-03 12:01:01 INFO AutoSwitchHAClient - Receive handshake, masterMaxPosition 0, x
2026-11-03 12:01:02 INFO BrokerControllerScheduledThread1 - update master ha address, OLD: 10.1.0.2:1 NEW: 10.1.0.3:1
2026-11-03 12:01:03 INFO AutoSwitchHAClient - AutoSwitchHAClient connect to master 10.1.0.3:1
2026-11-03 12:01:03 INFO AutoSwitchHAClient - Receive handshake, masterMaxPosition 0, x
2026-11-03 12:01:04 INFO HeartbeatThread_1 - new consumer connected, group: g [L:/10.1.0.2:1 - R:/10.1.0.9:1]
2026-11-03 12:01:05 INFO ReadSocketService - SyncStateSet changed from [1, 2, 3] to [1, 2]
"""


def of(number: int) -> Finding:
    return next(finding for finding in FINDINGS if finding.id == number)


def written(folder: Path, text: str | bytes, name: str = "n3/broker.log") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def places(found: Searched, number: int) -> list[tuple[str, str, int]]:
    return [(place.time, place.file, place.line) for place in found.sighted[number].places]


# Each finding.


def test_every_finding_with_a_line_has_a_real_one() -> None:
    assert sorted(LINES) == [finding.id for finding in WITH_LINE]


@pytest.mark.parametrize("finding", WITH_LINE, ids=lambda finding: finding.file)
def test_the_line_of_a_finding_is_found_in_an_own_log(finding: Finding, tmp_path: Path) -> None:
    """In the form that RocketMQ itself gives it: without milliseconds, and without the logger."""
    found = search(written(tmp_path, QUIET + "\n".join(LINES[finding.id]) + "\n"), FINDINGS)
    place = found.sighted[finding.id].places[0]
    stamp = LINES[finding.id][0].removeprefix("[").replace("Nov", "11")[:19]
    assert (place.time, place.file) == (stamp, "n3/broker.log")
    assert place.text in LINES[finding.id]
    lines = (QUIET + "\n".join(LINES[finding.id])).split("\n")
    assert lines[place.line - 1] == place.text


@pytest.mark.parametrize("finding", WITH_LINE, ids=lambda finding: finding.file)
def test_a_log_without_the_line_is_silent(finding: Finding, tmp_path: Path) -> None:
    """Also one with the lines of all other findings, unless theirs is the same line."""
    signature = finding.signature
    assert signature is not None
    assert signature.log is not None
    others = [line for n, lines in LINES.items() if n != finding.id for line in lines if not signature.log.search(line)]
    assert finding.id not in search(written(tmp_path, QUIET + "\n".join(others)), FINDINGS).sighted


@pytest.mark.parametrize("finding", WITH_LINE, ids=lambda finding: finding.file)
def test_a_search_for_plain_text_passes_over_no_line(finding: Finding) -> None:
    """The patterns have texts long enough to be rare; a line with a match has one of them."""
    assert finding.signature is not None
    assert finding.signature.log is not None
    words = words_of(finding.signature.log)
    assert min(map(len, words)) >= 8, words
    matched = [line for line in LINES[finding.id] if finding.signature.log.search(line)]
    assert matched
    assert all(any(word in line for word in words) for line in matched)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("abc.*defg", ("defg",)),
        ("(abc|de+f)x", ("abc", "d")),
        ("(abc|[xy])", ()),
        ("(abc)?de", ("de",)),
        ("(abc){2}", ("abc",)),
        (r"a\.b|cd", ("a.b", "cd")),
        ("[0-9]+", ()),
    ],
)
def test_texts_that_a_match_must_contain(pattern: str, words: tuple[str, ...]) -> None:
    assert words_of(compile_pattern(pattern)) == words


def test_what_is_ordinary_has_a_line() -> None:
    assert set(ORDINARY) <= set(LINES)


# Lines that another one must not follow.


@pytest.mark.parametrize(
    ("after", "shown", "note"),
    [
        ("2026-11-03 12:00:11 INFO x - y", True, ""),
        ("2026-11-03 12:00:09 INFO x - y", True, "the log ends within 10 s"),
        ("2026-11-03 12:00:09 INFO x - AutoSwitchHAClient connect to master 10.0.0.3:10912", False, ""),
        ("2026-11-03 12:00:09 INFO x - AutoSwitchHAClient connect to master 10.0.0.4:10912", True, "the log ends"),
        ("2026-11-03 12:00:12 INFO x - AutoSwitchHAClient connect to master 10.0.0.3:10912", True, ""),
    ],
)
def test_the_line_behind_may_take_it_back(after: str, shown: bool, note: str, tmp_path: Path) -> None:
    line = "2026-11-03 12:00:00 INFO x - update master ha address, OLD: 10.0.0.2:10912 NEW: 10.0.0.3:10912"
    found = search(written(tmp_path, f"{line}\n{after}\n"), [of(8)])
    assert (8 in found.sighted) == shown
    if shown:
        assert note in found.sighted[8].places[0].note


# Files.


@pytest.mark.parametrize("form", ["gz", "xz", "bz2"])
def test_compressed_logs_are_read(form: str, tmp_path: Path) -> None:
    """Rotated logs of RocketMQ are `otherdays/broker.1.log.gz`."""
    data = (QUIET + LINES[49][0] + "\n").encode()
    if form == "bz2":
        import bz2

        packed = bz2.compress(data)
    else:
        packed = gzip.compress(data) if form == "gz" else lzma.compress(data)
    found = search(written(tmp_path, packed, f"otherdays/broker.1.log.{form}"), FINDINGS)
    assert places(found, 49) == [("2026-11-28 20:18:11", f"otherdays/broker.1.log.{form}", 14)]


def test_a_damaged_archive_is_named_and_read_as_far_as_it_goes(tmp_path: Path) -> None:
    packed = gzip.compress((LINES[49][0] + "\n").encode() + os.urandom(1 << 20).hex().encode())
    found = search(written(tmp_path, packed[: len(packed) // 2], "a.gz"), FINDINGS)
    assert 49 in found.sighted
    assert found.skipped == [("a.gz", "its compressed data is damaged or ends early; the lines before were read")]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\0\1\2" * 1000, "not text"),
        (b"PK\x03\x04" + b"x" * 100, "compressed in a form that is not read here (zip)"),
        (b"\x28\xb5\x2f\xfd" + b"x" * 100, "compressed in a form that is not read here (zstd)"),
    ],
)
def test_what_is_no_log_is_named(data: bytes, why: str, tmp_path: Path) -> None:
    found = search(written(tmp_path, data, "commitlog/0"), FINDINGS)
    assert (found.skipped, found.files) == ([("commitlog/0", why)], 0)


def test_a_log_that_lost_a_page_is_still_a_log(tmp_path: Path) -> None:
    """After a power failure there may be NULs where lines were."""
    found = search(written(tmp_path, b"\0" * 4096 + (LINES[49][0] + "\n").encode()), FINDINGS)
    assert 49 in found.sighted


def test_pipes_links_and_unreadable_files_are_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "link.log").symlink_to("/dev/zero")
    (tmp_path / "folder").symlink_to("/")
    found = search(tmp_path, FINDINGS)
    assert dict(found.skipped) == {
        "pipe.log": "a pipe, not a regular file",
        "link.log": "a link, and links are not followed",
        "folder": "a link, and links are not followed",
    }


def test_memory_is_bounded_whatever_a_file_holds(tmp_path: Path) -> None:
    """64 MiB in one line, and the same packed into 64 KiB, take a few megabytes."""
    line = (LINES[49][0] + "\n").encode()
    written(tmp_path, b"x" * (64 << 20) + b"\n" + line, "long.log")
    with gzip.open(tmp_path / "bomb.log.gz", "wb") as file:
        for _ in range(64):
            file.write(b" " * (1 << 20))
        file.write(b"\n" + line)
    tracemalloc.start()
    try:
        found = search(tmp_path, FINDINGS)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [place[1:] for place in places(found, 49)] == [("bomb.log.gz", 2), ("long.log", 2)]
    assert most < 16 << 20


def test_a_file_beyond_the_limit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_logs, "MOST", 1 << 20)
    found = search(written(tmp_path, b"2026-11-03 12:00:00 x\n" * 200_000), FINDINGS)
    assert [name for name, _ in found.skipped] == ["n3/broker.log"]


def test_a_million_lines_of_one_finding_are_counted_and_a_few_kept(tmp_path: Path) -> None:
    minutes = [f"2026-11-03 {h:02d}:{m:02d}" for h in range(24) for m in range(60)]
    text = "".join(f"{minute}:0{s} ERROR x - Failed to persist\n" for minute in minutes for s in range(3))
    sighted = search(written(tmp_path, text), FINDINGS).sighted[53]
    assert sighted.count == 3 * len(minutes)
    assert [place.time for place in sighted.places] == [f"{minute}:00" for minute in minutes[: operator_logs.PLACES]]
    assert [place.more for place in sighted.places] == [2] * operator_logs.PLACES
    assert sighted.last is not None
    assert sighted.last.time == "2026-11-03 23:59:00"


def test_the_earliest_places_are_kept_whatever_the_order_of_files(tmp_path: Path) -> None:
    for day in (3, 1, 2):
        written(tmp_path, f"2026-11-0{day} 10:00:00 ERROR x - Failed to persist\n", f"{9 - day}.log")
    assert [place[0][:10] for place in places(search(tmp_path, FINDINGS), 53)] == [
        "2026-11-01",
        "2026-11-02",
        "2026-11-03",
    ]


def test_a_line_behind_the_border_of_a_piece_is_found_at_its_number(tmp_path: Path) -> None:
    line = "2026-11-03 10:00:00 ERROR x - Failed to persist\n"
    count = 3 * operator_logs.BLOCK // len(line)
    quiet = line.replace("Failed", "Managed")
    found = search(written(tmp_path, quiet * count + line), FINDINGS)
    assert places(found, 53) == [("2026-11-03 10:00:00", "n3/broker.log", count + 1)]
    assert found.lines == count + 1


# The command.


def logs(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = guarded(lambda: cli.main(["logs", *argv], prog_name="harness", standalone_mode=False))
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_the_command_says_where_and_what_to_look_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = LINES[49][0].replace("2026-11-28 20:18:11", "2026-11-03 12:01:02")
    code, out, _ = logs(capsys, str(written(tmp_path, f"{QUIET}{line}\n2026-11-03 12:02:00 INFO x - y\n")))
    assert code == 1
    where = "2026-11-03 12:01, n3/broker.log, line 14"
    assert out.startswith(f"finding 49 may have happened here: {where}; a restarted master begins its epoch again")
    for part in (
        "look at   The first master of a group is restarted",
        "meanwhile Elect another",
        "docs/findings/49-",
        line,
    ):
        assert part in out
    assert "not visible in any log, so not searched for: the findings 1, 2, 4," in out


def test_a_line_that_proves_little_comes_last_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "\n".join([*LINES[68], *LINES[70]]) + "\n"
    code, out, _ = logs(capsys, str(written(tmp_path, text)))
    assert code == 1
    assert (
        out.index("finding 70 may") < out.index("servers also write without the defect") < out.index("finding 68 may")
    )
    assert f"but       {ORDINARY[68]}" in out


def test_no_line_is_no_all_clear(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It says how much was read, and which findings no log shows."""
    code, out, _ = logs(capsys, str(written(tmp_path, QUIET)))
    assert code == 0
    assert "read: 13 lines in 1 files" in out
    assert "not visible in any log, so not searched for: the findings 1," in out
    assert out.splitlines()[-1] == f"none of the {len(WITH_LINE)} findings with a line was seen"


def test_a_file_that_could_not_be_read_leaves_the_answer_open(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A binary file is no log; a link may be one."""
    written(tmp_path, b"\0" * 100, "store/commitlog/0")
    assert logs(capsys, str(written(tmp_path, QUIET)))[0] == 0
    (tmp_path / "broker.log").symlink_to(tmp_path / "n3" / "broker.log")
    code, out, _ = logs(capsys, str(tmp_path))
    assert code == 2
    assert "not read: broker.log: a link, and links are not followed" in out


@pytest.mark.parametrize("text", ["", "no time at all\n", "\0\0\0"])
def test_a_folder_without_logs_gives_no_answer(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = logs(capsys, str(written(tmp_path, text)))
    assert code == 2
    assert "these are no logs of RocketMQ, or they are empty" in out


def test_json_has_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    code, out, _ = logs(capsys, str(written(tmp_path, LINES[49][0] + "\n", "n1/store.log")), "--json")
    assert code == 1
    found: dict[str, Any] = json.loads(out)
    assert [one["id"] for one in found["findings"]] == [49]
    assert found["findings"][0]["places"][0] == {
        "time": "2026-11-28 20:18:11",
        "file": "n1/store.log",
        "line": 1,
        "text": LINES[49][0],
        "more": 0,
        "note": "",
    }
    assert [one["id"] for one in found["not_visible_in_logs"]] == [f.id for f in FINDINGS if f not in WITH_LINE]
    assert found["not_read"] == [{"file": "link", "why": "a link, and links are not followed"}]


def test_a_path_that_leads_nowhere_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = logs(capsys, "/nowhere/at/all")
    assert (code, out) == (64, "")
    assert err == "harness: /nowhere/at/all: cannot be read: No such file or directory\n"


def test_control_characters_of_a_log_stay_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = logs(capsys, str(written(tmp_path, "2026-11-03 10:00:00 Failed to persist \x1b[2J\r finding 9\n")))
    assert "\x1b" not in out
    assert "\\x1b[2J" in out
