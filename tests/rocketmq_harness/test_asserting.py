# SPDX-License-Identifier: Apache-2.0
"""Assertions on histories: a good history passes, and each planted violation is shown in a few lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from checkers.linearizability import CasRegister
from results.errors import HistoryError
from rocketmq_harness import Recorder, assert_linearizable, assert_log, record


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    with record(tmp_path / "h.jsonl") as found:
        yield found


def write(recorder: Recorder, value: int, key: str | None = None) -> None:
    with recorder.op("write", key=key, value=value) as op:
        op.ok()


def read(recorder: Recorder, value: int | None, key: str | None = None) -> None:
    with recorder.op("read", key=key) as op:
        op.ok(value)


def test_a_good_history_passes_and_leaves_no_picture(recorder: Recorder) -> None:
    """Protects tests that pass: open or closed, as a recorder or as a path."""
    write(recorder, 1, "x")
    read(recorder, 1, "x")
    read(recorder, None, "y")
    for recorded in (recorder, str(recorder.path), recorder.path):
        assert_linearizable(recorded, "register")
        assert_linearizable(recorded, CasRegister())
    recorder.close()
    assert_linearizable(recorder, "register")
    assert not recorder.path.with_suffix(".html").exists()


def test_a_stale_read_is_shown_in_a_few_lines(recorder: Recorder) -> None:
    """Protects the text of a failure: the sentence, the operations, the place of history and picture."""
    write(recorder, 1, "x")
    with recorder.fault("kill", "n1"):
        write(recorder, 2, "x")
        read(recorder, 1, "x")
    with pytest.raises(AssertionError) as failure:
        assert_linearizable(recorder, "register")
    first, *listed, history, drawn = str(failure.value).splitlines()
    assert first.startswith("not linearizable as register: op 6: read 1 on key x cannot be placed")
    assert [line.split()[:2] for line in listed] == [["op", "0"], ["op", "4"], ["op", "6"]]
    assert listed[-1].endswith("<- cannot be placed")
    assert history == f"  history: {recorder.path}"
    picture = recorder.path.with_suffix(".html")
    assert drawn == f"  picture: {picture}"
    assert "kill" in picture.read_text()


def test_the_start_and_a_model_that_lacks_an_operation(recorder: Recorder) -> None:
    """Protects a register that does not begin empty, and refuses what the model cannot judge."""
    read(recorder, 7)
    assert_linearizable(recorder, CasRegister(7))
    with pytest.raises(AssertionError, match="read 7"):
        assert_linearizable(recorder, "cas-register", picture=False)
    assert not recorder.path.with_suffix(".html").exists()
    with recorder.op("increment") as op:
        op.ok(8)
    with pytest.raises(ValueError, match=r"no `increment`.*ignore=\{'increment'\} leaves it out"):
        assert_linearizable(recorder, CasRegister(7))
    assert_linearizable(recorder, CasRegister(7), ignore={"increment"})
    with pytest.raises(ValueError, match="no model 'regster'; there are cas-register, counter"):
        assert_linearizable(recorder, "regster")


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (None, "the model is None; a name is right, such as 'register', or CasRegister(0)"),
        (CasRegister, "the model is the class CasRegister; an object of it is right, such as"),
    ],
)
def test_a_model_of_another_kind_is_one_line(model: Any, said: str, recorder: Recorder) -> None:
    read(recorder, 7)
    with pytest.raises(TypeError, match=re.escape(said)):
        assert_linearizable(recorder, model)


def test_a_text_is_no_set_of_names(recorder: Recorder) -> None:
    """Protects against leaving out an operation whose name is a part of the text."""
    read(recorder, 7)
    said = re.escape("ignore is 'reread'; a set of names is right, such as {'reread'}")
    with pytest.raises(ValueError, match=said):
        assert_linearizable(recorder, "register", ignore="reread")
    with pytest.raises(ValueError, match=said):
        assert_log(recorder, ignore="reread")


def test_a_log_says_how_to_leave_an_operation_out(recorder: Recorder) -> None:
    """Protects the remedy of a test: the option of the command is none of it."""
    read(recorder, 7)
    with pytest.raises(AssertionError, match=r"has no `read` \(op 0\); ignore={'read'} leaves it out"):
        assert_log(recorder)


def test_nothing_that_happened_is_no_success(recorder: Recorder) -> None:
    """Protects against a test whose client never did anything: that is not decided, and fails."""
    with pytest.raises(AssertionError, match="nothing was recorded"):
        assert_linearizable(recorder, "register")
    with pytest.raises(OSError, match="down"), recorder.op("write", value=1):
        raise OSError("down")
    with pytest.raises(AssertionError, match="not decided as register: nothing checked"):
        assert_linearizable(recorder, "register")
    recorder.close()
    recorder.path.write_text("")
    with pytest.raises(AssertionError, match="nothing was recorded"):
        assert_linearizable(recorder.path, "register")
    recorder.path.write_text('{"process": 0}\n')
    with pytest.raises(HistoryError, match="needs the field 'type'"):
        assert_linearizable(recorder.path, "register")


def messages(recorder: Recorder, kept: list[list[int]]) -> None:
    """Two acknowledged messages, and a final read of what the broker kept."""
    for offset, number in enumerate((1, 2)):
        with recorder.op("send", key="q", value=number) as op:
            op.ok([offset, number], node="n1")
    with recorder.op("replica-read", key="q", value=0, node="n1") as op:
        op.ok(kept, node="n1", min=0, max=2, done=True)


def test_a_log_that_kept_everything_passes(recorder: Recorder) -> None:
    messages(recorder, [[0, 1], [1, 2]])
    assert_log(recorder)


def test_a_lost_message_is_named(recorder: Recorder) -> None:
    """Protects the log's failure text: name of the anomaly, and the place of the history."""
    messages(recorder, [[0, 1]])
    with pytest.raises(AssertionError) as failure:
        assert_log(recorder)
    first, *rest = str(failure.value).splitlines()
    assert first.startswith("not valid as log: ")
    assert any(line.startswith("  - lost: ") for line in rest)
    assert rest[-1] == f"  history: {recorder.path}"
    assert len(rest) <= 9


def test_a_log_without_final_reads_is_not_decided(recorder: Recorder) -> None:
    """Protects against a success that nothing proves."""
    with recorder.op("send", key="q", value=1) as op:
        op.ok([0, 1], node="n1")
    with pytest.raises(AssertionError, match="not decided as log: "):
        assert_log(recorder)
