# SPDX-License-Identifier: Apache-2.0
"""Options that an owner declares: what is right is taken, what is wrong is one clear line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.options import (
    NoOptions,
    OptionError,
    Seconds,
    Size,
    assignments,
    dump,
    duration_text,
    option,
    parse,
    seconds,
    size,
    specs,
)


@dataclass(frozen=True)
class DelayOptions:
    delay: Seconds = option(Seconds(0.05), "How long.", low=0.001, high=10)
    ports: tuple[int, ...] = option((), "Which ports.", low=1, high=65535)
    mode: Literal["fixed", "jitter"] = option("fixed", "Which way.")
    room: Size = option(Size(4096), "How much.")
    key: str | None = option(None, "A file.", metavar="FILE", flag="--ssh-key")
    share: float = option(0.5, "A part.", low=0, high=1)
    hard: bool = option(False, "Whether.", permission=True)

    def __post_init__(self) -> None:
        if self.hard and self.mode == "fixed":
            raise ValueError("hard goes with mode = 'jitter' only")


def made(**given: Any) -> DelayOptions:
    return parse(DelayOptions, given, "plan.toml", "the nemesis 'delay'")


def test_what_is_left_out_takes_its_default() -> None:
    assert made() == DelayOptions()
    assert dump(DelayOptions()) == {
        "delay": "0.05s",
        "ports": [],
        "mode": "fixed",
        "room": 4096,
        "share": 0.5,
        "hard": False,
    }


def test_values_of_toml_and_texts_of_the_command_line_are_alike() -> None:
    toml = made(delay=0.25, ports=[80, 443], room=65536, share=1, hard=True, mode="jitter")
    text = made(delay="250ms", ports="80, 443", room="64KiB", share="1", hard="true", mode="jitter")
    assert toml == text == DelayOptions(Seconds(0.25), (80, 443), "jitter", Size(65536), None, 1.0, True)
    assert made(**dump(toml)) == toml


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"dely": "1s"}, "plan.toml: the nemesis 'delay' has no option 'dely'; did you mean 'delay'?"),
        ({"zzz": 1}, "has no option 'zzz'; it has delay, ports, mode"),
        ({"delay": "soon"}, "plan.toml: delay is 'soon'; a duration is right, such as 60, '90s' or '2m'"),
        ({"delay": "11s"}, "delay is '11s'; 0.001s to 10s is right"),
        ({"delay": True}, "delay is True; a duration"),
        ({"ports": 80}, "ports is 80; a list is right"),
        ({"ports": [80, "x"]}, "ports is 'x'; a whole number is right"),
        ({"ports": [0]}, "ports is 0; 1 to 65535 is right"),
        ({"ports": [1.5]}, "ports is 1.5; a whole number is right"),
        ({"mode": "slow"}, "mode is 'slow'; fixed or jitter is right"),
        ({"mode": ["fixed"]}, "fixed or jitter is right"),
        ({"room": "4 KB"}, "a size is right, such as 4096, '64KiB' or '1.5GiB'"),
        ({"room": -1}, "a size is right"),
        ({"key": "a\0b"}, "text without NUL characters is right"),
        ({"share": "nan"}, "a finite number is right"),
        ({"share": 10**400}, "share is a number of more than 60 digits; a finite number is right"),
        ({"hard": "yes"}, "hard is 'yes'; true or false is right"),
        ({"hard": True}, "plan.toml: hard goes with mode = 'jitter' only"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as problem:
        made(**given)
    assert said in str(problem.value)
    assert "\n" not in str(problem.value)


def test_an_option_without_a_default_must_be_given() -> None:
    @dataclass(frozen=True)
    class Needy:
        who: str = option(help="Who.")

    globals()["Needy"] = Needy
    with pytest.raises(OptionError, match="x: it needs the option who"):
        parse(Needy, {}, "x", "it")
    assert parse(Needy, {"who": "n1"}, "x").who == "n1"


def test_what_help_shows() -> None:
    found = specs(DelayOptions)
    assert [spec.flag for spec in found.values()][:5] == ["--delay", "--ports", "--mode", "--room", "--ssh-key"]
    assert [spec.placeholder for spec in found.values()] == [
        "TIME", "N", "fixed|jitter", "SIZE", "FILE", "X", "true|false"
    ]  # fmt: skip
    assert found["delay"].describe() == "How long.  [default: 0.05s]"
    assert found["key"].describe() == "A file."
    assert [spec.name for spec in found.values() if spec.permission] == ["hard"]
    assert specs(NoOptions) == {}


@pytest.mark.parametrize("hint", [dict[str, int], list[int], int | str, tuple[int, int], object])
def test_a_type_that_no_option_can_have_is_the_programmers_mistake(hint: Any) -> None:
    namespace: dict[str, Any] = {"__annotations__": {"x": hint}, "x": option(None, "")}
    owner = dataclass(frozen=True)(type("Odd", (), namespace))
    with pytest.raises(TypeError):
        specs(owner)


@given(st.integers(0, 86_400_000_000).map(lambda us: us / 1e6))
def test_durations_round_trip(value: float) -> None:
    assert seconds(duration_text(value), "x") == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "value"), [("90s", 90), ("1.5m", 90), (2, 2), ("250ms", 0.25), ("1h", 3600), ("5us", 5e-6)]
)
def test_durations(text: object, value: float) -> None:
    assert seconds(text, "x") == pytest.approx(value)


@pytest.mark.parametrize(("text", "value"), [(5, 5), ("5", 5), ("1.5KiB", 1536), ("2MiB", 2 << 20), ("1GiB", 1 << 30)])
def test_sizes(text: object, value: int) -> None:
    assert size(text, "x") == value


def test_assignments() -> None:
    assert assignments(["delay=5ms", "a-b=c=d"], "x") == {"delay": "5ms", "a_b": "c=d"}
    with pytest.raises(OptionError, match="x: 'delay' is not NAME=VALUE"):
        assignments(["delay"], "x")


def test_a_name_that_is_there_twice_adds_to_a_list() -> None:
    """The first version of `to=5.5.0 to=5.3.3` was lost without a word, and the upgrade led to where it began."""
    assert assignments(["to=5.5.0", "to=5.3.3", "back=false"], "x") == {"to": "5.5.0,5.3.3", "back": "false"}
