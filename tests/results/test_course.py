# SPDX-License-Identifier: Apache-2.0
"""The course of a run as a picture that stands alone."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from sample_run import sample_run

from results.history import History
from results.record import RunRecord
from results.report.course import MOST, course
from results.verdict import Anomaly

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert(1)</script>\"'&\x00]]>-->"


def texts(picture: str) -> list[str]:
    return ["".join(node.itertext()) for node in ET.fromstring(picture).iter(f"{SVG}text")]


def test_it_shows_what_clients_got_who_led_and_when_it_was(tmp_path: Path) -> None:
    record, judgement = sample_run(tmp_path)
    picture = course(record, judgement.anomalies, "5. It breaks", "n1 broker.log: the line of the mechanism")
    found = texts(picture)
    for said in ("5. It breaks", "ops per second", "n5", "leader 4", "n1 broker.log: the line of the mechanism"):
        assert said in found
    assert any(label.startswith("unavailable, 00:50.0 to 00:56.0") for label in found)
    assert sum("partition-h" in label for label in found) == 4, "two strikes, on two panels"
    assert "var(--ok)" in picture
    assert "--ok: #2674c8" in picture, "it brings its style"


def test_nothing_that_it_is_given_is_taken_for_markup(tmp_path: Path) -> None:
    record, _ = sample_run(tmp_path)
    anomaly = Anomaly(HOSTILE, "x", window=(0, 5))
    picture = course(record, [anomaly], HOSTILE, HOSTILE)
    assert ET.fromstring(picture).find(f".//{SVG}script") is None
    assert sum("<script>" in label for label in texts(picture)) == 3


def test_a_run_without_anything_has_a_picture() -> None:
    assert "never" in texts(course(RunRecord(History([])), [Anomaly("lost", "no op proves it")], "never"))


def test_at_most_some_are_marked_and_a_long_line_is_cut(tmp_path: Path) -> None:
    record, _ = sample_run(tmp_path)
    many = [Anomaly("lost", "x", ops=[4 * n]) for n in range(50)]
    found = texts(course(record, many, "heading", "word " * 1000))
    assert sum(label.startswith("lost,") for label in found) == MOST
    assert sum(len(label) for label in found if label.startswith(("word", "ord", "rd", "d "))) < 400


def test_a_name_without_room_beside_its_line_is_above_it(tmp_path: Path) -> None:
    record, _ = sample_run(tmp_path)
    last = max(op.time for op in record.history)
    for window, anchor in (((0, last // 9), "start"), ((last * 8 // 9, last), "end"), ((last // 9, last), "start")):
        picture = course(record, [Anomaly("never-returned", "x", window=window)], "heading", "")
        (named,) = [t for t in ET.fromstring(picture).iter(f"{SVG}text") if t.get("class") == "named"]
        assert named.get("text-anchor") == anchor
        assert float(named.get("x", "-1")) > 0
