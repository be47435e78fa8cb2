# SPDX-License-Identifier: Apache-2.0
"""The report: it says what is known of any run, escapes everything, and stays small."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args
from urllib.parse import unquote

import pytest
from sample_run import FAULTS, MS, S, Story, sample_history, sample_judgement, sample_observations, sample_run

from results.errors import StoreError
from results.fault_intervals import FaultInterval, fault_intervals, lanes
from results.figures import quantile
from results.history import Call, History
from results.op import NEMESIS, Op
from results.record import Observation, RunRecord
from results.report import bands, plots, render, svg, timeline, words, write_report
from results.report.entries import gist
from results.report.story import LISTED, TOLD
from results.report.tables import leader_changes
from results.strikes import Effect, EffectKind
from results.verdict import Anomaly, CheckResult, Judgement, KnownFinding, Verdict

VOID = {"meta", "link", "br", "img", "input", "hr"}
HOSTILE = "<script>alert(1)</script>\"'&\x00\u202e\ud800]]>-->"


class Outline(HTMLParser):
    """The page as a browser reads it: tags with attributes, visible text. It asserts that all tags close in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.text.append(data)

    @property
    def said(self) -> str:
        return re.sub(r"[ \n]+", " ", " ".join(self.text)).strip()


def outline(
    history: History,
    judgement: Judgement,
    plan: dict[str, Any] | None = None,
    observations: Sequence[Observation] = (),
) -> Outline:
    record = RunRecord(history, plan or {}, observations=observations)
    return Outline(render(record, judgement, Path("report.html")))


def judged(*anomalies: Anomaly, verdict: Verdict = Verdict.INVALID) -> Judgement:
    return Judgement([CheckResult("linearizability", verdict, "as it is", anomalies)])


def call(i: int, start: int, end: int | None, f: str = "read", value: Any = None, type_: Any = "ok") -> Call:
    done = None if end is None else Op(2 * i + 1, end, i, type_, f, "k", value)
    return Call(Op(2 * i, start, i, "invoke", f, "k", None if f == "read" else value), done)


# The whole page


def test_report_of_a_full_run_answers_the_readers_questions(tmp_path: Path) -> None:
    record, judgement = sample_run(tmp_path)
    write_report(record, judgement, tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text()
    seen = Outline(html)
    for expected in [
        "invalid A guarantee was broken.",
        "5 checkers: 2 invalid (linearizability, availability), 1 unknown (convergence), 2 valid",
        "linearizability invalid 1 of 30 keys",
        "availability invalid nothing acknowledged for 33.1 s",
        "1 nonlinearizable No order of the operations explains an answer.",
        "no operation was acknowledged for 33.1 s from 00:50.0 although a majority",
        "nemesis partition-halves, hammer-time",
        "operations 6\u202f000 (",
        "started 2026-11-21 06:12:44 UTC",
        f"harness run --plan {tmp_path}/plan.toml",
        "Legal here, so it does not fail the run: read mode `unsafe` permits it",
        "COMPARE -> INSTALL_SNAPSHOT for n1 n2 n3 n5",
        "n3 in term 1 (at 00:13.0)",
        "drops packets from n1 n2 n5",
        "after the heal, n1 answers again",
        "not leader: refused before the append",
        "KeyError: 'n9'",
        "heartBeatTimeIntervalMs",
        "6.1.0-27-amd64",
    ]:
        assert expected in seen.said, expected
    headings = [a.get("id") for tag, a in seen.tags if tag == "h2"]
    assert headings == [
        *("happened", "course", "anomalies", "strikes", "latency", "quantiles", "positions", "lag"),
        *("changes", "faults", "operations", "errors", "files", "environment"),
    ]
    assert list(tmp_path.glob("*.tmp")) == list(tmp_path.glob(".*")) == []


def test_report_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    record, judgement = sample_run(tmp_path)
    html = render(record, judgement, tmp_path / "report.html")
    seen = Outline(html)
    assert not [tag for tag, _ in seen.tags if tag in {"script", "link", "iframe", "object", "embed", "img", "base"}]
    links = [a["href"] or "" for tag, a in seen.tags if tag == "a"]
    assert links
    ids = {a["id"] for _, a in seen.tags if a.get("id")}
    for href in links:
        if href.startswith("#"):
            assert href[1:] in ids
        elif href.startswith("data:text/csv;charset=utf-8,"):
            assert len(unquote(href).splitlines()) > 1
        else:
            assert href.startswith("./")
            assert (tmp_path / unquote(href)).is_file()
    assert set(re.findall(r"(?:https?:)?//[a-z][^\s\"'<]*", html)) == {"http://www.w3.org/2000/svg"}
    assert re.findall(r"url\(([^)]*)\)", html) == ["#fade"]


def test_report_can_be_read_without_seeing_it(tmp_path: Path) -> None:
    record, judgement = sample_run(tmp_path)
    seen = Outline(render(record, judgement, tmp_path / "report.html"))
    assert all(a.get("scope") in {"col", "row"} for tag, a in seen.tags if tag == "th")
    pictures = [a for tag, a in seen.tags if tag == "svg" and not (a.get("class") or "").startswith("swatch")]
    assert len(pictures) == 1 + 3 + 6 + 1  # the gradient, the timelines, the plots, the times of the anomalies
    assert all(a.get("aria-label") or a.get("aria-hidden") for a in pictures)
    ids = [a["id"] for _, a in seen.tags if a.get("id")]
    assert len(ids) == len(set(ids))


@pytest.mark.slow
def test_a_long_run_makes_a_small_report(tmp_path: Path) -> None:
    record, judgement = sample_run(tmp_path, rate=500, length_s=60, concurrency=50)
    assert len(record.history) > 60_000
    assert len(render(record, judgement, tmp_path / "report.html").encode()) < 1_000_000


@pytest.mark.parametrize(
    "where", ["key", "value", "error", "f", "node", "fault", "summary", "reason", "plan", "detail"]
)
def test_whatever_a_run_holds_stays_text(where: str) -> None:
    output = {name: HOSTILE if name == where else "x" for name in ("key", "value", "error", "f", "node", "fault")}
    story = Story()
    strike = {
        "fault": output["fault"],
        "id": 1,
        "nodes": {output["node"]: [output["node"]]},
        "evidence": {output["node"]: "x"},
    }
    story.add(0, NEMESIS, "invoke", "inject", value=strike)
    story.add(1, NEMESIS, "info", "inject", value=strike, error=output["error"])
    story.add(2, 0, "invoke", output["f"], key=output["key"], value=output["value"], extra={"node": output["node"]})
    story.add(3, 0, "info", output["f"], key=output["key"], value=output["value"], error=output["error"])
    text = HOSTILE if where in ("summary", "reason", "detail") else "x"
    anomaly = Anomaly(text, text, output["key"], (0, 2), (0, 3), {text: text, "nodes": {text: {"log": text}}}, text)
    judgement = Judgement([CheckResult(text, Verdict.INVALID, text, [anomaly], {text: text, "traceback": text})])
    observations = [Observation(0, output["node"], "leader", 1, None, 0, 5, 5, 5)]
    plan = {"workload": HOSTILE if where == "plan" else "register", "nemesis": [{"fault": output["fault"]}]}
    record = RunRecord(story.history(), plan, {text: text}, observations, path=Path(text.replace("\0", "")))
    html = render(record, judgement, Path("report.html"))
    seen = Outline(html)
    assert "script" not in {tag for tag, _ in seen.tags}
    assert not any(name.startswith("on") for _, a in seen.tags for name in a)
    assert "alert(1)" in seen.said or where == "plan"
    assert not {"\0", "\u202e", "\ud800"} & set(html)


def test_runs_that_hold_little_are_told_too() -> None:
    nothing = outline(History([]), Judgement([]))
    assert "unknown The run does not show whether the guarantees hold." in nothing.said
    assert "The history has no client operation." in nothing.said
    assert "No checker has judged this run." in nothing.said
    assert not [a for tag, a in nothing.tags if tag == "svg" and a.get("role") == "img"]

    foreign = outline(History([Op(0, 5, 0, "invoke", "read"), Op(1, 9, 0, "ok", "read", value=3)]), judged())
    assert "a history from elsewhere" in foreign.said
    assert "operations 1 (1 ok)" in foreign.said
    assert "seed" not in foreign.said

    strike = {"fault": "hammer-time", "id": 1, "nodes": {"n1": "SIGSTOP"}}
    killed = outline(
        History([Op(0, 5, 0, "invoke", "write", "k", 1), Op(1, 6, NEMESIS, "invoke", "inject", None, strike)]),
        judged(verdict=Verdict.UNKNOWN),
        plan={"workload": "register"},
    )
    assert "1 operation has no completion" in killed.said
    assert "no heal of #1 hammer-time n1" in killed.said
    assert "not observed" in killed.said

    quiet = outline(History([]), judged(), observations=sample_observations(10))
    assert "leader 1" in quiet.said


def test_what_fails_the_run_is_told_before_what_is_legal_and_each_name_before_many_of_one() -> None:
    story = Story()
    for i in range(3):
        story.add(10 * i, 0, "invoke", "read", key="k")
        story.add(10 * i + 5, 0, "ok", "read", key="k", value=i)
    many = [Anomaly("stale-read", f"stale {i}", "k", (0,)) for i in range(TOLD + LISTED)]
    seen = outline(
        story.history(), judged(Anomaly("odd", "odd", legal="so configured"), *many, Anomaly("lost-write", "lost"))
    )
    names = re.findall(r"odd|stale-read|lost-write", seen.said)
    assert names[0] == "stale-read"
    assert "lost-write" in names[:TOLD]
    assert sum(1 for tag, _ in seen.tags if tag == "article") == TOLD
    assert f"The first of {words.number(TOLD + LISTED)}: stale 0" in seen.said
    assert "2 more are in verdict.json." in seen.said


def lost_and_read() -> tuple[History, Anomaly, list[Anomaly]]:
    """One loss as three checkers show it, and a stale read of another message."""
    story = Story()
    story.add(0, 1, "invoke", "send", key="q", value=7)
    story.add(9, 1, "ok", "send", key="q", value=[3, 7])
    story.add(20, 2, "invoke", "poll", key="q", value=3)
    story.add(29, 2, "ok", "poll", key="q", value=[[3, 7], [4, 8]])
    story.add(40, 3, "invoke", "poll", key="q", value=4)
    story.add(49, 3, "ok", "poll", key="q", value=[[4, 8]])
    lost = Anomaly("lost", "1 acknowledged message lost: n2 acknowledged it.", None, (0,), (0, 9), {"count": 2})
    others = [
        Anomaly("dirty-read", "a reader received message 8", None, (2,), details={"count": 3}),
        Anomaly("nonlinearizable", "no log", "q", (0, 4)),
        Anomaly("dirty-read", "another one", None, (4,)),
        Anomaly("reordered", "another defect of the same send", None, (0,)),
    ]
    return story.history(), lost, others


def test_one_event_is_one_entry_and_no_case_is_left_out() -> None:
    history, lost, others = lost_and_read()
    seen = outline(history, judged(*others, lost))
    assert sum(1 for tag, _ in seen.tags if tag == "article") == 3, "the loss, the other read, the other defect"
    assert "anomalies (5)" in seen.said
    assert "2 lost An acknowledged message is on no replica at the end." in seen.said
    assert "The same event: 3 dirty-read, 1 nonlinearizable." in seen.said
    assert "the same event, as other proofs show it: 3 dirty-read, 1 nonlinearizable" in seen.said
    assert "1 dirty-read A read returned a message that was not committed" in seen.said


def test_a_contradiction_at_a_lost_offset_is_the_same_loss() -> None:
    """A large loss names its first messages as proof, and all of its offsets."""
    history, lost, (_, nonlinearizable, *_) = lost_and_read()
    large = replace(lost, ops=(), details={"count": 900, "offsets": {"q": [[1, 2], [3, 900]], "other": "x"}})
    for offsets, articles in (({"q": [[3, 900]]}, 1), ({"q": [[4, 900]]}, 2), ({"p": [[3, 900]]}, 2), (7, 2)):
        seen = outline(history, judged(replace(large, details={"offsets": offsets}), nonlinearizable))
        assert sum(1 for tag, _ in seen.tags if tag == "article") == articles, offsets
    assert "900 lost" in outline(history, judged(large)).said


def test_the_gist_of_a_summary_is_its_first_sentence_without_asides() -> None:
    summary = "6,914 messages lost: n4 acknowledged them (a at 188 to 1920 (1733), b at 3). Message 892 is gone."
    assert gist(summary) == "6,914 messages lost: n4 acknowledged them."


def test_a_permitted_anomaly_is_no_part_of_an_entry_that_fails_the_run() -> None:
    history, lost, (read, *_) = lost_and_read()
    seen = outline(history, judged(lost, replace(read, legal="so configured")))
    assert sum(1 for tag, _ in seen.tags if tag == "article") == 2
    assert "3 dirty-read A read returned a message that was not committed and is gone at the end. Does not fail" in (
        seen.said
    )


def test_an_entry_with_a_new_anomaly_comes_before_known_ones() -> None:
    history, lost, (_, nonlinearizable, *_) = lost_and_read()
    known = (KnownFinding(5, "a cut-off master", {"lost": 2, "odd": 1}),)
    results = [CheckResult("log", Verdict.INVALID, "x", [Anomaly("odd", "odd"), lost, nonlinearizable])]
    seen = outline(history, Judgement(results, known, ["nonlinearizable"]))
    assert seen.said.index("2 lost An") < seen.said.index("1 odd Known: finding 5.")
    assert "Known: finding 5. New: nonlinearizable." in seen.said


def test_a_plot_comes_with_its_data() -> None:
    calls = [call(0, 0, 5 * MS, "=SUM(A1)"), call(1, 2 * S, 2 * S + 7 * MS, "read", type_="fail")]
    drawn = plots.latency(calls, plots.stage([], 3 * S))
    assert drawn is not None
    assert drawn.csv.splitlines() == [
        "invoked_s,latency_ms,outcome,operation",
        "0,5,ok,'=SUM(A1)",
        "2,7,fail,read",
    ]
    assert unquote(drawn.uri) == f"data:text/csv;charset=utf-8,{drawn.csv}"
    many = plots.Plot(drawn.picture, ("x",), [(i,) for i in range(3 * plots.CSV_ROWS)])
    assert len(many.csv.splitlines()) == plots.CSV_ROWS + 1


def test_a_report_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    record, judgement = sample_run(tmp_path)
    with pytest.raises(StoreError, match="the report cannot be written"):
        write_report(record, judgement, tmp_path / "missing" / "report.html")


# Faults as bands


def test_bands_are_read_off_the_nemesis_ops() -> None:
    found = fault_intervals(sample_history())
    assert [(b.id, b.fault, b.start_ns, b.end_ns) for b in found] == [
        (number, fault, int(start * S), int(end * S)) for number, fault, start, end, _ in FAULTS
    ]
    assert found[0].nodes == FAULTS[0][4]
    assert found[0].evidence["n3"].endswith("packets dropped")
    assert found[0].after_heal == {"n3": "answers again", "n4": "answers again", "n1": "answers again"}
    assert all(b.seen and b.error is None for b in found)


def test_a_heal_that_failed_ends_no_band_and_a_later_one_does() -> None:
    what = {"fault": "bridge", "id": 4, "nodes": ["n1"]}
    ops = [
        Op(0, 1, NEMESIS, "invoke", "inject", value=what),
        Op(1, 2, NEMESIS, "info", "inject", value={**what, "seen": False}, error="took no effect"),
        Op(2, 5, NEMESIS, "invoke", "heal", value=what),
        Op(3, 6, NEMESIS, "info", "heal", value=what, error="n1 did not answer"),
    ]
    (open_,) = fault_intervals(History(ops))
    assert (open_.end_ns, open_.seen, open_.error, list(open_.nodes)) == (None, False, "n1 did not answer", ["n1"])
    (closed,) = fault_intervals(History([*ops, Op(4, 9, NEMESIS, "info", "heal", value=what)]))
    assert closed.end_ns == 9


def test_every_kind_of_effect_has_a_style_and_a_word() -> None:
    assert set(get_args(EffectKind)) == set(bands.KINDS) - {bands.OTHER}
    patterns = str(bands.definitions())
    drawn = {kind: str(bands.swatch(kind)) for kind in bands.KINDS}
    for kind, swatch in drawn.items():
        assert f"k-{kind}" in swatch
        assert all(f'id="{name}"' in patterns for name in re.findall(r"url\(#([\w-]+)\)", swatch))
    styles = {re.sub(r"k-[\w-]+|tile-[\w-]+", "", swatch) for swatch in drawn.values()}
    assert len(styles) == 2, "they differ in tint and pattern alone"
    assert sum("url(#tile-" in swatch for swatch in drawn.values()) == 7


def test_a_label_names_all_nodes_that_were_struck() -> None:
    effects = [Effect("down", "n1"), Effect("down", "n2"), Effect("cut-off", "n3", peers=("n1",))]
    assert FaultInterval("power-failure", 1, 1, 9, {"n1": None}, effects=effects).label == "#1 power-failure n1 n2"
    assert FaultInterval("disk", 2, 1, 9, {"n1 disk": None}, effects=effects[:1]).label == "#2 disk n1 disk"


def test_a_band_shows_what_the_fault_did_and_what_was_measured() -> None:
    effects = [Effect("down", "n1"), Effect("unsynced-lost", "n1")]
    fault = FaultInterval("power-failure", 1, 1, 9, {"n1": None}, {"n1": "disks cut off within 2 ms"}, effects=effects)
    assert bands.kinds(fault) == ["unsynced-lost", "down"]
    stage = plots.stage([fault], 10)
    drawn = str(bands.draw_bands([fault], stage.frame(100)))
    assert 'class="wash k-unsynced-lost"' in drawn
    assert 'class="wash k-down"' not in drawn
    assert 'class="chip k-down"' in drawn
    assert "unsynced data lost, down\nn1: disks cut off within 2 ms" in drawn
    assert bands.kinds(FaultInterval("old", 1, 1, 9, impairs={"n1": ["n1"], "n2": ["n3"]})) == ["down", "cut-off"]
    assert bands.kinds(FaultInterval("config-change", 1, 1, 9)) == ["other"]
    assert bands.shown([fault, FaultInterval("x", 2, 1, 9)]) == ["unsynced-lost", "down", "other"]


def test_bands_of_a_jepsen_history() -> None:
    fs = ["start-partition", "start-partition", "stop-partition", "stop-partition", "start", "hello"]
    ops = [Op(i, i * 10, NEMESIS, "info", f, value="grudge") for i, f in enumerate(fs)]
    assert [(b.fault, b.start_ns, b.end_ns) for b in fault_intervals(History(ops))] == [
        ("partition", 0, 30),
        ("fault", 40, None),
    ]


def test_bands_that_overlap_get_lanes_of_their_own() -> None:
    def band(start: int, end: int | None) -> FaultInterval:
        return FaultInterval("f", start, start, end)

    assert lanes([band(0, 10), band(5, None), band(10, 12), band(11, 20)], 100) == [0, 1, 0, 2]


# Plots


def test_thinning_keeps_what_can_be_seen() -> None:
    ok = [(i / 100, 50 + i % 7) for i in range(100_000)]
    lone = [(3.0, 3.0)]
    kept = plots.thinned({("ok", "read"): ok, ("fail", "read"): lone}, 2000)
    assert kept["fail", "read"] == lone
    assert 500 < len(kept["ok", "read"]) <= 2000
    assert min(p[0] for p in kept["ok", "read"]) < 2
    assert max(p[0] for p in kept["ok", "read"]) > 990


def test_quantiles_are_values_that_occurred() -> None:
    values = [float(i) for i in range(1, 101)]
    assert [quantile(values, q) for q in (0, 0.5, 0.95, 0.99, 1)] == [1, 50, 95, 99, 100]
    assert quantile([7.0], 0.99) == 7


def test_spells_join_what_stays_the_same_and_leave_holes_where_nothing_was_heard() -> None:
    def said(second: int, role: str, term: int) -> Observation:
        return Observation(second * S, "n1", role, term)

    found = plots.spells(
        [said(0, "leader", 1), said(1, "leader", 1), said(2, "leader", 2), said(30, "silent", 2)], 31 * S
    )
    assert found == [
        (0, 2 * S, "leader", 1),
        (2 * S, 7 * S, "leader", 2),
        (30 * S, 31 * S, "silent", 2),
    ]


def test_leader_changes_name_who_else_said_it_led() -> None:
    changes = leader_changes(sample_observations())
    assert [(c.when, c.node, c.term, c.before) for c in changes] == [
        ("00:00.0", "n3", "1", "none seen"),
        ("00:14.0", "n1", "2", "n3, term 1"),
        ("00:34.0", "n5", "4", "n1, term 2"),
        ("00:53.0", "n2", "5", "n5, term 4"),
    ]
    assert changes[1].beside.startswith("n3 in term 1")


@pytest.mark.parametrize("last", [0, 1, 3 * MS, S, 90 * S, 7200 * S])
def test_axes_are_round_and_few_at_any_length(last: int) -> None:
    ticks = svg.time_ticks(0, last)
    assert ticks[0] == 0
    assert ticks[-1] <= last
    assert len(ticks) <= 14
    calls = [call(0, 0, last)]
    on = plots.stage([], last)
    for draw in (plots.latency, plots.quantiles, plots.rate):
        assert draw(calls, on) is not None


@pytest.mark.parametrize("span", [0, S, 7200 * S, 10**15, 10**18, 2**63])
def test_windows_are_few_at_any_length(span: int) -> None:
    """A time of 2^63 ns made a plot of 21 million windows."""
    step = plots.window(span, 120)
    assert step >= 1
    assert span / step <= 200
    on = plots.stage([], span)
    drawn = plots.rate([call(0, 0, span)], on)
    assert drawn is not None
    assert len(drawn.picture) < 100_000
    assert len(drawn.csv) < 100_000


@pytest.mark.parametrize(("top", "last"), [(0, 1), (3, 3), (97, 100), (0.02, 0.02), (1e6, 1e6)])
def test_value_ticks_reach_the_top(top: float, last: float) -> None:
    assert svg.round_ticks(top)[-1] == pytest.approx(last)


# Timeline


def test_timeline_takes_the_core_and_its_neighbours_and_says_what_it_left_out() -> None:
    calls = [call(i, i * MS, i * MS + 500) for i in range(1000)]
    scene = timeline.choose(calls, {200, 1801}, (100 * MS, 900 * MS))
    shown = [c.invoke.index // 2 for c in scene.calls]
    assert scene.core == {200, 1800}
    assert {100, 900} <= set(shown)
    assert len(shown) == 46
    assert all(min(abs(i - 100), abs(i - 900)) <= 12 for i in shown)
    ((start, end, left_out),) = scene.cuts
    assert 100 * MS < start < end < 900 * MS
    assert left_out == end // MS - start // MS - 1


def test_timeline_is_clipped_however_large_the_core() -> None:
    calls = [call(i, i * MS, i * MS + 500) for i in range(1000)]
    assert len(timeline.choose(calls, set(range(2000)), None).calls) == timeline.MOST
    assert len(timeline.choose(calls, set(), (0, S)).calls) <= timeline.MOST
    assert timeline.choose([], {1}, (0, S)).calls == []


def test_timeline_shows_outcome_core_and_faults() -> None:
    calls = [call(0, 0, 5, "write", 17), call(1, 2, None, "write", 18), call(2, 6, 9, "read", 12)]
    scene = timeline.choose(calls, {0, 4}, None)
    drawn = str(timeline.draw(scene, [FaultInterval("bridge", 3, 1, None, {"n2": None})]))
    assert "0: write k := 17" in drawn
    assert "4: read k → 12" in drawn
    assert drawn.count('class="bar ok core"') == 2
    assert drawn.count('class="bar info"') == drawn.count('class="fade"') == 1
    assert "#3 bridge n2" in drawn


def test_a_process_that_follows_an_info_takes_its_lane_and_no_other_does() -> None:
    calls = [call(0, 0, 5), call(1, 6, 8, "write", 1, "info"), call(2, 10, 12), call(3, 13, 14)]
    drawn = str(timeline.draw(timeline.choose(calls, {0}, None), []))
    assert re.findall(r'class="lane"><title>processes ([^<]*)</title>', drawn) == ["0", "1 2", "3"]


# Words


def test_words() -> None:
    assert [words.duration(t) for t in (350_000, 12.34 * MS, 999.9 * MS, 4 * S, 59.97 * S, 161 * S)] == [
        *("350 µs", "12.3 ms", "1.0 s", "4.0 s", "1 min 00 s", "2 min 41 s"),
    ]
    assert words.text("a" * 1000, 10) == "aaaaaaaaa…"
    assert words.text("a\nb\x1b") == "a\\nb\\x1b"
    assert words.call_text(call(0, 0, 5, "cas", [4, 9])) == "cas k 4 → 9"
    assert words.call_text(call(0, 0, 5, "read", None)) == "read k → nil"
    assert words.call_text(call(0, 0, 5, "read", 7, "info")) == "read k → ?"


def test_the_sample_is_judged_as_the_page_says() -> None:
    assert sample_judgement(sample_history()).verdict == Verdict.INVALID
