# SPDX-License-Identifier: Apache-2.0
"""A seeded share of `tests.fuzz.bad_input`: each bad input ends with the right exit code and one clean line."""

from __future__ import annotations

import pytest
from effort import effort
from fuzz.bad_cases import case
from fuzz.bad_common import Case
from fuzz.bad_input import End, failures, wrong


@pytest.mark.parametrize("share", range(5))
@pytest.mark.slow
def test_bad_input_ends_well(share: int) -> None:
    numbers = range(share * effort(30), (share + 1) * effort(30))
    bad = [f"--seed 7 --only {n} ({one.name}): {text}" for n, one, _, text in failures(7, numbers) if text]
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize("share", range(2))
@pytest.mark.slow
def test_bad_series_end_well(share: int) -> None:
    """The same for nights, series, findings files, mends, strikes, packages of others, the action and odd ops."""
    numbers = range(share * effort(30), (share + 1) * effort(30))
    found = failures(7, numbers, series=True)
    bad = [f"--series --seed 7 --only {n} ({one.name}): {text}" for n, one, _, text in found if text]
    assert not bad, "\n".join(bad)


GOOD = Case("x", ["check"], [2])


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (End(2, "h  unknown\n"), ""),
        (End(1), "exit code 1"),
        (End(2, seconds=21.0), "21 s"),
        (End(2, peak_kb=2 << 20), "2048 MiB"),
        (End(2, "a\x1b[31m\n"), "stdout has"),
        (End(2, err="harness: a\x9b\n"), "stderr has"),
        (End(2, err="Traceback (most recent call last)\n"), "Traceback"),
        (End(2, err="harness: a\nharness: b\n"), "2 lines on stderr"),
        (End(2, "x\nharness: forged\n"), "looks like an error of the harness"),
        (End(2, "h: the check itself failed (KeyError)\n"), "itself failed"),
    ],
)
def test_what_is_wrong_is_noticed(end: End, said: str) -> None:
    found = wrong(GOOD, end)
    assert bool(found) == bool(said)
    assert said in " ".join(found)


def test_a_number_makes_the_same_input_again(tmp_path: object) -> None:
    from pathlib import Path

    folders = [Path(str(tmp_path)) / name for name in ("a", "b")]
    for number in range(20):
        made = []
        for folder in folders:
            (folder / str(number)).mkdir(parents=True)
            one = case(3, number, folder / str(number))
            made.append([word.replace(str(folder), "") for word in one.argv])
        assert made[0] == made[1]
