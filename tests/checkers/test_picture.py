# SPDX-License-Identifier: Apache-2.0
"""The picture of a violation: it stands alone, says what the result says, and its paths are true."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from random import Random
from typing import Any

import pytest
from models_at_work import falsified, lived, model_of

from checkers.linearizability import CasRegister, FifoQueue, Register, check, encode
from checkers.linearizability.evidence import picture as picture_module
from checkers.linearizability.evidence.picture import partial_linearizations, picture
from results.history import Call, History
from results.op import Op, OpType
from results.verdict import Verdict

Event = tuple[int, OpType, str, Any]

CHROMIUM = shutil.which("chromium")


def history(*events: Event) -> History:
    return History(Op(i, i * 1000, p, type_, f, "k", value) for i, (p, type_, f, value) in enumerate(events))


def did(process: int, f: str, argument: Any, result: Any = None) -> list[Event]:
    return [(process, "invoke", f, argument), (process, "ok", f, argument if result is None else result)]


STALE = history(
    *did(0, "write", 4),
    (3, "invoke", "write", 9),
    (3, "info", "write", 9),
    *did(1, "write", 2),
    *did(0, "read", None, 4),
)


def drawn(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    first = data["paths"][0]["rest"] if data["paths"] else []
    data["paths"] = [first[: path["same"]] + path["rest"] for path in data["paths"]]
    return data


class Elements(HTMLParser):
    """The files that a page would fetch, the elements that it leaves open, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href", "action", "data")]
        if tag not in ("meta", "br", "link", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data if self.open[-1:] not in (["script"], ["style"]) else ""


def test_the_page_stands_alone_and_says_what_was_found() -> None:
    result = check(STALE, Register())
    page = picture(STALE.calls, Register(), result, "shop.jsonl")
    elements = Elements(page)
    assert (elements.fetched, elements.open) == ([], [])
    assert "http:" not in page
    assert "https:" not in page
    assert "default-src 'none'" in page
    assert result.reason in elements.text
    assert "read 4 — cannot be placed" in elements.text
    data = drawn(page)
    assert [(op[0], op[4], op[5], op[6]) for op in data["ops"]] == [
        (0, "ok", "write 4", 1),
        (2, "info", "write 9", 0),
        (4, "ok", "write 2", 1),
        (6, "ok", "read 4", 2),
    ]
    endings = {tuple(step[2] for step in path) for path in data["paths"]}
    assert ("4", "2") in endings
    assert ("4", "2", "9") in endings


def test_no_text_of_a_history_becomes_part_of_the_page() -> None:
    evil = "</script><script>alert(1)</script><img src=x>"
    bad = history(*did(0, "write", evil), *did(0, "read", None, evil + evil), *did(0, "write", evil))
    page = picture(bad.calls, Register(), check(bad, Register()), evil)
    assert Elements(page).fetched == []
    assert page.count("<script") == 2
    assert page.count("</script>") == 2
    assert drawn(page)["ops"][0][5].startswith("write '</script>")


def test_only_a_violation_can_be_drawn() -> None:
    good = history(*did(0, "write", 1))
    with pytest.raises(ValueError, match="a valid history has no error to be shown"):
        picture(good.calls, Register(), check(good, Register()), "x")


@pytest.mark.parametrize("name", ["cas-register", "fifo-queue", "log", "fenced-lock"])
@pytest.mark.slow
def test_every_path_is_an_order_that_can_have_been(name: str) -> None:
    """Each op within its call, one after the other; all that had returned before the error is there."""
    rng, pictures, several = Random(name), 0, 0
    while pictures < 60:
        calls = falsified(rng, name, lived(rng, name, 0.3, most=12))
        model = model_of(name)
        result = check(calls, model)
        if result.verdict != Verdict.INVALID:
            continue
        pictures += 1
        data = drawn(picture(calls, model, result, "x"))
        ops = data["ops"]
        (error,) = [op for op in ops if op[6] == 2]
        assert {op[0] for op in ops if op[6]} == set(result.core)
        assert data["paths"]
        several += len(data["paths"]) > 1
        must = {row for row, op in enumerate(ops) if op[4] == "ok" and op[3] < error[3]}
        for path in data["paths"]:
            assert must <= {row for row, _, _ in path}
            assert len({row for row, _, _ in path}) == len(path)
            places = [place for _, place, _ in path]
            assert places == sorted(set(places))
            for row, place, _ in path:
                end = ops[row][3] if ops[row][4] == "ok" else error[3]
                assert ops[row][2] < place < min(end, error[3])
        assert len({path[-1][2] if path else None for path in data["paths"]}) == len(data["paths"])
    assert several > 5


def test_paths_end_in_the_states_that_were_possible() -> None:
    rng, told = Random(5), 0
    while told < 60:
        calls = falsified(rng, "cas-register", lived(rng, "cas-register", 0.2, most=10))
        result = check(calls, CasRegister())
        if result.verdict != Verdict.INVALID or not result.states:
            continue
        told += 1
        problem = encode(calls, CasRegister())
        assert result.failing_op is not None
        paths = partial_linearizations(problem, problem.ret[problem.source.index(result.failing_op)])
        endings = {path.states[-1] if path.states else "absent" for path in paths}
        assert endings <= set(result.states)


def test_a_path_has_a_state_for_each_op_also_where_the_first_state_is_none() -> None:
    """The state before any write is None: it must not be taken for "no state"."""
    calls = history(*did(0, "read", None), *did(0, "write", 4), *did(1, "read", None)).calls
    problem = encode(calls, Register())
    (path,) = partial_linearizations(problem, len(problem.events) - 1)
    assert path.states == ["absent", "4"]


def test_ops_of_a_lane_do_not_overlap() -> None:
    """Although clients come and go: each unknown op ends one."""
    events: list[Event] = []
    for i in range(40):
        events += [(i, "invoke", "write", i), (i, "info", "write", i)] if i % 3 else did(100, "write", i)
        if i % 7 == 0:
            events.append((200 + i, "invoke", "write", 1000 + i))
    bad = history(*events, *did(100, "read", None, "?"))
    data = drawn(picture(bad.calls, Register(), check(bad, Register()), "x"))
    last: dict[int, int] = {}
    for op in data["ops"]:
        assert last.get(op[1], -1) < op[2]
        last[op[1]] = op[3] if op[3] >= 0 else data["events"]
    assert len(last) <= 10
    assert data["lanes"] == len(last)


def long_history(ops: int) -> History:
    events: list[Event] = []
    for i in range(ops // 2):
        events += [*did(i % 20, "write", i % 5), *did((i + 7) % 20, "read", None, i % 5)]
    return history(*events, *did(3, "read", None, 77))


@pytest.mark.slow
def test_ten_thousand_ops_are_a_page_of_moderate_size() -> None:
    bad = long_history(10_000)
    page = picture(bad.calls, CasRegister(), check(bad, CasRegister()), "x")
    assert len(drawn(page)["ops"]) == 10_001
    assert len(drawn(page)["paths"][0]) == 10_000
    assert len(page) < 1_500_000


def test_of_a_longer_history_the_part_around_the_error_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture_module, "MOST_OPS", 500)
    bad = long_history(1_500)
    page = picture(bad.calls, CasRegister(), check(bad, CasRegister()), "x")
    data = drawn(page)
    assert len(data["ops"]) == 500
    assert data["ops"][-1][6] == 2
    assert "1,001 of them far from the error" in page


def test_a_long_core_is_counted_and_its_end_told() -> None:
    """Thirty elements that have to come out in order, and the last two do not."""
    events = [event for i in range(30) for event in did(0, "enqueue", i)]
    events += [event for i in range(28) for event in did(0, "dequeue", None, i)]
    bad = history(*events, *did(0, "dequeue", None, 29))
    result = check(bad, FifoQueue())
    text = Elements(picture(bad.calls, FifoQueue(), result, "x")).text
    listed = [line for line in text.splitlines() if "dequeue -> 29" in line]
    assert any("cannot be placed" in line for line in listed)
    if len(result.core) > 20:
        assert f"{len(result.core) - 20} more, called before them" in text


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here to open the page with")
def test_a_browser_draws_it(tmp_path: Path) -> None:
    """Its script runs to the end: the table of steps, which it fills, is there."""
    page = tmp_path / "page.html"
    calls: list[Call] = list(long_history(10_000).calls)
    page.write_text(picture(calls, CasRegister(), check(calls, CasRegister()), "x"))
    switches = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    more = f"--disable-component-update --disable-sync --user-data-dir={tmp_path}/profile --dump-dom file://{page}"
    done = subprocess.run(
        [str(CHROMIUM), *switches.split(), *more.split()], capture_output=True, text=True, timeout=120, check=False
    )
    steps = re.search(r'<table id="steps">(.*?)</table>', done.stdout, re.DOTALL)
    assert steps is not None, done.stderr[-1000:]
    assert steps[1].count("<tr") == 42
    assert "read 77 cannot follow" in steps[1]
