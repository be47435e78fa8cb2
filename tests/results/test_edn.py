# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import any_ops
import pytest
from hypothesis import given

from results.formats.edn import EdnError, parse_edn, write_value


@pytest.mark.parametrize(
    ("text", "forms"),
    [
        ("", []),
        (" ,; nothing\n", []),
        ("nil true false", [None, True, False]),
        (":a :a/b foo -", ["a", "a/b", "foo", "-"]),
        ("0 -7 +7 12N 99999999999999999999", [0, -7, 7, 12, 99999999999999999999]),
        ("1.5 -2e3 1.0M 1/3", [1.5, -2000.0, 1.0, "1/3"]),
        (r'"a" "" "\"\\\n\tA\101" "😀"', ["a", "", '"\\\n\tAA', "\U0001f600"]),
        (r"\a \newline \space \u0041 \{", ["a", "\n", " ", "A", "{"]),
        ("[1 (2 #{3 4}) {}]", [[1, [2, [3, 4]], {}]]),
        ('{:a 1, "b" 2, 3 4, [5] 6}', [{"a": 1, "b": 2, "3": 4, "[5]": 6}]),
        ('#inst "2026-01-01" #uuid "x" #my/tag {:a #t 1}', ["2026-01-01", "x", {"a": 1}]),
        ("#_ 1 2 [#_ [3 #_ 4] 5] #_ #_ 6 7 8", [2, [5], 8]),
        ("#_ #tag 1 2 #tag #_ 3 4", [2, 4]),
        ("##NaN ##-Inf", ["NaN", "-Inf"]),
        ("[1;x\n2]", [[1, 2]]),
    ],
)
def test_the_notation(text: str, forms: list[Any]) -> None:
    assert parse_edn(text) == forms


@pytest.mark.parametrize(
    "text", ["[", "]", "(]", "{1}", '"a', "12x", ":", r'"\q"', "\\nonsense", "#_", "[#tag]", "{:a 1 :a 2}"]
)
def test_what_is_no_edn(text: str) -> None:
    with pytest.raises(EdnError):
        parse_edn(text)


def test_an_atom_seen_before_is_not_mistaken_for_another_kind() -> None:
    assert parse_edn('1 "1" :1a [1 "1"] true :true') == [1, "1", "1a", [1, "1"], True, "true"]


@given(any_ops.values)
def test_what_is_written_is_read_back(value: Any) -> None:
    back = parse_edn(write_value(value))
    assert back == [value]
    assert repr(back) == repr([value])


def test_a_key_that_stands_twice_is_found_in_one_pass() -> None:
    """The square of so many keys would take minutes."""
    keys = " ".join(f":k{i} 0" for i in range(200_000))
    with pytest.raises(EdnError, match="a map with the key 'k199999' twice"):
        parse_edn("{" + keys + " :k199999 1}")
