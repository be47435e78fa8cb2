# SPDX-License-Identifier: Apache-2.0
"""`harness check --template NAME`: a small history in the right form, to copy from; the schema of the form; and the
recorders that write this form in other languages.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any, Final, NamedTuple

from harness.plan.plan import PlanError
from infra.options import suggest

SCHEMA: Final = "schema"

RECORDERS: Final = ("Recorder.java", "recorder.go", "recorder.mjs")
"""The files of `examples/recorders/`, which the package contains."""


class Step(NamedTuple):
    """An operation: its name, its argument, its result. `outcome`: `ok`, `fail` or `info`."""

    f: str
    argument: Any = None
    result: Any = None
    key: str | None = None
    outcome: str = "ok"
    extra: Mapping[str, Any] = {}


def _sends(key: str) -> list[Step]:
    return [
        Step("send", 1, [0, 1], key, extra={"node": "n1"}),
        Step("send", 2, [1, 2], key, extra={"node": "n1"}),
        Step("send", 3, 3, key, "info", {"node": "n1"}),
    ]


_PLACE: Final = {"node": "n1", "role": "master", "min": 0, "max": 2, "next": 2}
_FINAL: Final = Step("replica-read", 0, [[0, 1], [1, 2]], "t:a:0", extra={**_PLACE, "done": True})

TEMPLATES: Final[Mapping[str, list[Step]]] = {
    "register": [Step("write", 1, 1, "x"), Step("read", None, 1, "x"), Step("write", 2, 2, "x", "info")],
    "cas-register": [
        Step("write", 1, 1, "x"),
        Step("cas", [1, 2], [1, 2], "x"),
        Step("cas", [1, 3], [1, 3], "x", "fail"),
        Step("read", None, 2, "x"),
    ],
    "multi-register": [
        Step("txn", [["write", "x", 1], ["write", "y", 2]], [["write", "x", 1], ["write", "y", 2]]),
        Step("txn", [["read", "x", None], ["write", "y", 3]], [["read", "x", 1], ["write", "y", 3]]),
        Step("txn", [["read", "y", None]], [["read", "y", 3]]),
    ],
    "kv": [
        Step("put", "a", "a", "k"),
        Step("append", "b", "b", "k"),
        Step("get", None, "ab", "k"),
        Step("delete", None, None, "k"),
        Step("get", None, None, "k"),
    ],
    "counter": [Step("add", 2, 2), Step("add-and-get", 3, 5), Step("read", None, 5)],
    "grow-only-set": [Step("add", 1, 1), Step("add", 2, 2), Step("read", None, [1, 2])],
    "converging-set": [
        Step("add", 1, 1),
        Step("add", 2, None, outcome="info"),
        Step("read", None, []),
        Step("read", None, [1], extra={"final": True, "node": "n1"}),
        Step("read", None, [1], extra={"final": True, "node": "n2"}),
    ],
    "converging-counter": [
        Step("add", 3, 3),
        Step("add", -1, -1),
        Step("read", None, 3),
        Step("read", None, 2, extra={"final": True, "node": "n1"}),
        Step("read", None, 2, extra={"final": True, "node": "n2"}),
    ],
    "set": [Step("add", 1, 1), Step("contains", 1, True), Step("remove", 1, 1), Step("read", None, [])],
    "fifo-queue": [Step("enqueue", "a", "a"), Step("enqueue", "b", "b"), Step("dequeue", None, "a")],
    "unordered-queue": [Step("enqueue", "a", "a"), Step("dequeue", None, "a"), Step("dequeue", None, None)],
    "stack": [Step("push", "a", "a"), Step("push", "b", "b"), Step("pop", None, "b")],
    "mutex": [Step("acquire"), Step("try-acquire", None, False), Step("release")],
    "fenced-lock": [Step("acquire", "c1", 1), Step("release", "c1", "c1"), Step("acquire", "c2", 2)],
    "reentrant-lock": [Step("acquire", "c1"), Step("acquire", "c1"), Step("release", "c1"), Step("release", "c1")],
    "log": [Step("append", "a", 0), Step("append", "b", 1), Step("read", 0, "a"), Step("max-offset", None, 2)],
    "messages": [
        *_sends("t:a:0"),
        Step("poll", 0, [[0, 1]], "t:a:0", extra={**_PLACE, "next": 1, "start": True}),
        Step("poll", 1, [[1, 2]], "t:a:0", extra=_PLACE),
        _FINAL,
    ],
    "queue": [
        *_sends("t:a:0"),
        Step("consume", 0, [[0, 1], [1, 2]], "t:a:0", extra={**_PLACE, "group": "g"}),
        Step("commit", 2, 2, "t:a:0", extra={"node": "n1", "group": "g"}),
        Step("committed", None, 2, "t:a:0", extra={"node": "n1", "role": "master", "group": "g"}),
        _FINAL,
        Step("drain", None, {"committed": 2, "max": 2, "consumed_to": 2}, "t:a:0", extra={"group": "g"}),
    ],
}
"""For each model, and for each workload of messages, a history that it accepts."""

OPTIONS: Final = {"messages": "--workload log", "queue": "--workload queue"}
"""The options for templates that are no model."""


def template(name: str) -> Iterator[str]:
    """Yields the lines of a template. Raises PlanError for another name."""
    if name == SCHEMA:
        yield from schema().splitlines()
        return
    steps = TEMPLATES.get(name)
    if steps is None:
        names = sorted((*TEMPLATES, SCHEMA, *RECORDERS))
        raise PlanError(f"no template {name!r}{suggest(name, names)}  (there are {', '.join(names)})")
    time = process = 0
    for step in steps:
        for type_, value in (("invoke", step.argument), (step.outcome, step.result)):
            event: dict[str, Any] = {"process": process, "type": type_, "f": step.f}
            if step.key is not None:
                event["key"] = step.key
            time += 1_000_000
            event |= {"value": value, "time": time}
            if type_ == "info":
                event["error"] = "timed out"
            if type_ == "fail":
                event["error"] = "it held another value"
            if step.extra:
                event["extra"] = {n: v for n, v in step.extra.items() if type_ != "invoke" or n not in ("min", "max")}
            yield json.dumps(event)
        process += step.outcome == "info"  # (It does nothing more.)


def recorder(name: str) -> str:
    """The source of a recorder."""
    return resources.files("harness.shipped").joinpath("recorders", name).read_text()


def schema() -> str:
    """The JSON schema of an event (JSON Schema, draft 2020-12)."""
    return resources.files("results.formats").joinpath("event.schema.json").read_text()
