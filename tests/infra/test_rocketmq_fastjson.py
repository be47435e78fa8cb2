# SPDX-License-Identifier: Apache-2.0
"""The reader of fastjson's dialect: all of JSON, keys that are no strings, and a reason for what is neither."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.systems.rocketmq.protocol.fastjson import FastjsonError, canonical, loads

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=15,
)

keys = st.text(max_size=5) | st.integers() | st.booleans() | st.none() | plain
Dialect = tuple[str, Any]
"""A text in the dialect, and what it must be read as."""


def _map(members: list[tuple[Any, Dialect]]) -> Dialect:
    text = ",".join(f"{json.dumps(key)}:{value[0]}" for key, value in members)
    return f"{{{text}}}", {key if isinstance(key, str) else canonical(key): value[1] for key, value in members}


def _list(items: list[Dialect]) -> Dialect:
    return f"[{','.join(text for text, _ in items)}]", [value for _, value in items]


dialect = st.recursive(
    plain.map(lambda value: (json.dumps(value), value)),
    lambda inner: st.lists(inner, max_size=4).map(_list) | st.lists(st.tuples(keys, inner), max_size=4).map(_map),
    max_leaves=15,
)


@given(plain)
def test_json_is_read_as_json(value: Any) -> None:
    assert loads(json.dumps(value)) == value
    assert loads(json.dumps(value, ensure_ascii=False, indent=1).encode()) == value


@given(dialect)
def test_keys_that_are_no_strings_become_their_text(case: Dialect) -> None:
    text, value = case
    assert loads(text) == value
    assert loads(f" {text}\n") == value


@given(plain)
def test_such_a_key_can_be_read_again(value: Any) -> None:
    (key,) = loads(f"{{{json.dumps([value])}:0}}")
    assert json.loads(key) == [value]


@given(st.text(alphabet='{}[]:,"0a \\nul-', max_size=30) | st.text(max_size=10))
def test_anything_else_is_refused_in_one_line(text: str) -> None:
    assert "\n" not in refusal(text)


def refusal(text: str) -> str:
    try:
        loads(text)
    except FastjsonError as e:
        return str(e)
    return ""


def test_what_servers_send() -> None:
    members = b'{"brokerMemberGroup":{"brokerAddrs":{0:"127.0.0.1:21911",2:"x"},"cluster":"c"}}'
    assert loads(members)["brokerMemberGroup"]["brokerAddrs"] == {"0": "127.0.0.1:21911", "2": "x"}
    stats = '{"offsetTable":{{"brokerName":"a","queueId":1,"topic":"t"}:{"maxOffset":7}}}'
    assert loads(stats) == {"offsetTable": {'{"brokerName":"a","queueId":1,"topic":"t"}': {"maxOffset": 7}}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no value at character 0"),
        ("{0:1", "neither ',' nor '}'"),
        ("{0 1}", "no ':' after the key"),
        ("[1 2]", "neither ',' nor ']'"),
        ("{0:}", "no value"),
        ("{0:1} x", "more after the value"),
        ("{a:1}", "no value"),
        ("{1:" * 200 + "0" + "}" * 200, "nested deeper"),
        ("[" * 100_000, "nested deeper"),
    ],
)
def test_the_reason_and_the_place_are_told(text: str, said: str) -> None:
    with pytest.raises(FastjsonError, match=said):
        loads(text)


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(FastjsonError, match="not UTF-8"):
        loads(b"\xff{}")
