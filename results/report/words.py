# SPDX-License-Identifier: Apache-2.0
"""Readable formats of times, values and operations."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from results.figures import SECOND
from results.history import Call
from results.op import OK, Op
from results.visible import THIN_SPACE, visible

Pair = tuple[str, str]
"""A name and its value."""


def precise(ns: int) -> str:
    """Seconds since the start with milliseconds, for the order of ops: `118.402 s`."""
    return f"{ns / SECOND:.3f} s"


def duration(ns: float) -> str:
    """`350 µs`, `12.3 ms`, `4.0 s`, `2 min 41 s`."""
    seconds = ns / SECOND
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms" if seconds < 0.9995 else "1.0 s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    return f"{whole // 60} min {whole % 60:02d} s"


def number(n: int) -> str:
    """`14 902`, with thin spaces that do not break."""
    return f"{n:,}".replace(",", THIN_SPACE)


def count(n: int, thing: str, things: str | None = None) -> str:
    """`1 operation`, `12 operations`."""
    return f"{number(n)} {thing if n == 1 else things or thing + 's'}"


def text(value: object, limit: int = 300) -> str:
    """Any JSON value on one line, at most `limit` characters; an invisible character is written as an escape."""
    if isinstance(value, str):
        label = value
    elif value is None:
        label = "nil"
    else:
        label = json.dumps(value, ensure_ascii=False, default=str, separators=(", ", ": "))
    # Cut first: a value may be megabytes. Escapes may lengthen it again, so cut twice.
    label = visible(label[: limit + 1], keep="")
    return label if len(label) <= limit else label[: limit - 1] + "…"


def lines(value: object, limit: int = 20_000) -> str:
    """A value as preformatted text: log lines stay lines, other JSON is indented. At most `limit` characters."""
    if isinstance(value, str):
        label = value
    elif isinstance(value, list | tuple) and value and all(isinstance(v, str) for v in value):
        label = "\n".join(value)
    else:
        label = json.dumps(value, ensure_ascii=False, default=str, indent=2)
    cut = label if len(label) <= limit else label[:limit] + f"\n… ({number(len(label) - limit)} characters more)"
    return visible(cut)


def op_text(op: Op, limit: int = 80) -> str:
    """One op as text: `write k3 := 17`, `read k3 → 12`, `cas k3 4 → 9`, `inject hammer-time #2 n4`."""
    value = op.value
    if not op.is_client and isinstance(value, Mapping):
        nodes = value.get("nodes") or {}
        names = " ".join(str(n) for n in nodes) if isinstance(nodes, Mapping | list) else ""
        return text(f"{op.f} {value.get('fault', 'fault')} #{value.get('id', '?')} {names}".rstrip(), limit)
    what = op.f if op.key is None else f"{op.f} {text(op.key, 24)}"
    if op.f == "read":
        return text(f"{what} → {text(value, 40)}" if op.type == OK else what, limit)
    if op.f == "write":
        return text(f"{what} := {text(value, 40)}", limit)
    if op.f == "cas" and isinstance(value, list | tuple) and len(value) == 2:
        return text(f"{what} {text(value[0], 24)} → {text(value[1], 24)}", limit)
    return text(what if value is None else f"{what} {text(value, 40)}", limit)


def call_text(call: Call, limit: int = 80) -> str:
    """An operation with its result if that is known, else with its argument."""
    done = call.completion
    known = done is not None and (done.type == OK or done.value is not None)
    label = op_text(done if done is not None and known else call.invoke, limit)
    if call.invoke.f == "read" and call.outcome != OK:
        label += " → ?"
    return label


def flat(table: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    """Yields nested tables as dotted names and one-line texts, in their order."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        elif value not in (None, "", [], ()):
            label = ", ".join(map(text, value)) if isinstance(value, list | tuple) else text(value, 2000)
            yield text(f"{prefix}{key}"), label


def shown_path(path: Path) -> str:
    """A path as in a command: relative to the current folder if it is below that, quoted for a shell."""
    here = Path.cwd()
    full = path.absolute()
    return shlex.quote(str(full.relative_to(here) if full.is_relative_to(here) else full))
