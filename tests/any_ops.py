# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies for operations: everything the type allows, the ugly included."""

from __future__ import annotations

from hypothesis import strategies as st

from results.op import OP_TYPES, Op

text = st.text(max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
int64 = st.integers(min_value=-(2**63), max_value=2**63 - 1)

ops = st.builds(
    Op,
    index=int64,
    time=int64,
    process=st.integers(min_value=-1, max_value=2**40),
    type=st.sampled_from(OP_TYPES),
    f=text,
    key=st.none() | text,
    value=values,
    error=st.none() | text,
    extra=st.dictionaries(text, values, max_size=3),
)


@st.composite
def histories(draw: st.DrawFn) -> list[Op]:
    """Well-formed histories as our own harness writes them: registers with keys, and a nemesis."""
    found: list[Op] = []
    time, fresh = 0, 10
    busy: dict[int, Op] = {}
    actors = list(range(3))
    for _ in range(draw(st.integers(min_value=0, max_value=30))):
        time += draw(st.integers(min_value=0, max_value=5))
        process = draw(st.sampled_from([*actors, -1]))
        invoked = busy.pop(process, None)
        if invoked is None:
            f = draw(st.sampled_from(["read", "write", "cas"])) if process >= 0 else "kill"
            value = {"read": None, "write": draw(values.filter(lambda v: v is not None)), "cas": [1, 2]}.get(f)
            key = draw(text) if process >= 0 else None
            busy[process] = op = Op(len(found), time, process, "invoke", f, key, value, None, {"node": draw(text)})
        else:
            type_ = draw(st.sampled_from(["ok", "fail", "info"])) if process >= 0 else "info"
            seen = draw(values) if invoked.f == "read" else invoked.value
            error = None if type_ == "ok" else draw(st.none() | text)
            op = Op(len(found), time, process, type_, invoked.f, invoked.key, seen, error, draw(extras))
            if type_ == "info" and process >= 0:
                actors[actors.index(process)] = fresh
                fresh += 1
        found.append(op)
    return found


extras = st.dictionaries(text | st.sampled_from(["index", "value", "extra", "node"]), values, max_size=2)
