# SPDX-License-Identifier: Apache-2.0
"""One history in the form of every tool has one verdict: no reader changes what happened, or when."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from effort import effort
from tiny_histories import calls

from checkers import linearizability as lin
from results.formats import read_history, write_edn, write_jsonl
from results.history import Call
from results.op import INFO, OK, Op
from results.verdict import Verdict


def drawn(rng: Random, op: int) -> tuple[str, Any, Any]:
    if rng.random() < 0.5:
        return "get", None, rng.choice(["", "a", "b", "c"])
    value = rng.choice("abc")
    return "put", value, value


def in_order(found: Sequence[Call]) -> list[Op]:
    """The events of the calls, those of unknown outcome without a result."""
    ops = [op for call in found for op in (call.invoke, call.completion) if op is not None]
    return sorted(ops, key=lambda op: op.index)


def records(found: Sequence[Call]) -> Iterator[dict[str, Any]]:
    for call in found:
        ok = call.outcome == OK
        yield {
            "client": call.invoke.process, "op": call.invoke.f, "key": "k", "start": call.invoke.index,
            "end": call.completion.index if ok and call.completion else None,
            "type": "ok" if ok else "info",
            ("value" if call.invoke.f == "put" else "output"): call.invoke.value if call.invoke.f == "put" else
            call.completion.value if ok and call.completion else None,
        }  # fmt: skip


def porcupine(found: Sequence[Call], *, numbers: bool) -> Iterator[dict[str, Any]]:
    for call in found:
        put = call.invoke.f == "put"
        name: Any = call.invoke.f if not numbers else int(put)
        ok = call.outcome == OK and call.completion is not None
        seen = call.completion.value if ok and not put and call.completion else ""
        yield {
            "ClientId": 0, "Input": {"Op": name, "Key": "k", "Value": call.invoke.value or ""},
            "Call": call.invoke.index, "Output": {"Value": seen, "Unknown": not ok},
            "Return": call.completion.index if call.completion else 999,
        }  # fmt: skip


def events(found: Sequence[Call]) -> Iterator[dict[str, Any]]:
    ids = {call.invoke.process: n for n, call in enumerate(found)}
    for op in in_order([call if call.outcome == OK else Call(call.invoke, None) for call in found]):
        value = {"Value": op.value if op.f == "get" else ""}
        if op.type == "invoke":
            value = {"Op": op.f, "Key": "k", "Value": op.value or ""}
        yield {"ClientId": 1, "Kind": op.type != "invoke", "Value": value, "Id": ids[op.process]}


def robustness(found: Sequence[Call]) -> Iterator[dict[str, Any]]:
    for call in found:
        ok = call.outcome == OK and call.completion is not None
        answer: dict[str, Any] = {"Error": "" if ok else "timeout"}
        if call.invoke.f == "put":
            step = {"Type": "put-operation", "Put": {"Key": "k", "Value": {"Value": call.invoke.value}}}
            given: dict[str, Any] = {"Type": "txn", "Range": None, "Txn": {"OperationsOnSuccess": [step]}}
            answer["Txn"] = {"Failure": False, "Results": [{}]}
        else:
            given = {"Type": "range", "Txn": None, "Range": {"Start": "k", "End": ""}}
            seen = call.completion.value if ok and call.completion else None
            answer["Range"] = {"KVs": [{"Key": "k", "Value": {"Value": seen}}] if seen else None}
        yield {
            "ClientID": call.invoke.process, "Input": given, "Call": call.invoke.index, "Output": answer,
            "Return": call.completion.index if call.completion else 999,
        }  # fmt: skip


def lines(objects: Iterator[dict[str, Any]]) -> str:
    return "".join(json.dumps(one) + "\n" for one in objects)


def text(found: Sequence[Call], front: str) -> str:
    """Jepsen's text, in which one register has no key."""
    shown = [
        f"{front}{op.process}\t:{op.type}\t:{op.f}\t{json.dumps(op.value) if op.value is not None else 'nil'}"
        + ("\t:timed-out" if op.type == INFO else "")
        for op in in_order(found)
    ]
    return "\n".join(shown) + "\n"


FORMS: dict[str, Callable[[Sequence[Call]], str]] = {
    "records": lambda found: lines(records(found)),
    "an array of records, turned round": lambda found: json.dumps(list(records(found))[::-1]),
    "records in seconds": lambda found: lines(
        {**r, "start": r["start"] / 7, "end": None if r["end"] is None else r["end"] / 7} for r in records(found)
    ),
    "porcupine": lambda found: lines(porcupine(found, numbers=False)),
    "porcupine with numbers": lambda found: lines(porcupine(found, numbers=True)),
    "porcupine's events": lambda found: lines(events(found)),
    "etcd": lambda found: lines(robustness(found)),
    "history.txt": lambda found: text(found, ""),
    "a console": lambda found: text(found, "INFO [2020-05-11 13:10:28,123] jepsen worker 1 - jepsen.util "),
}  # fmt: skip


def test_every_form_of_a_history_has_one_verdict(tmp_path: Path) -> None:
    rng, found = Random(3), Counter[Verdict]()
    path = tmp_path / "history"
    for number in range(effort(60)):
        tiny = calls(rng, drawn, crash=0.25 * (number % 3), most=6)
        if not any(call.outcome == OK for call in tiny):
            continue
        ops = [Op(n, op.index, op.process, op.type, op.f, op.key, op.value) for n, op in enumerate(in_order(tiny))]
        wanted = lin.check(tiny, lin.KV()).verdict
        found[wanted] += 1
        for write in (write_jsonl, write_edn):
            write(ops, path)
            assert _verdict(path) == wanted, (write, ops)
        for form, made in FORMS.items():
            path.write_text(made(tiny))
            assert _verdict(path) == wanted, (form, path.read_text())
    assert min(found[Verdict.VALID], found[Verdict.INVALID]) > effort(20) // 4


def _verdict(path: Path) -> Verdict:
    (result,) = lin.check_keys(read_history(path).history, lin.KV()).values()
    return result.verdict
