# SPDX-License-Identifier: Apache-2.0
"""The anomalies of a run as entries of its report: one event is one entry, although several checkers found it.

An anomaly joins the entry of another one only if `meanings.toml` says that their names can describe one event, and if
both have an operation or a message in common. No anomaly is left out of the counts.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from results.history import Call
from results.report.words import number, text
from results.verdict import Anomaly, Judgement

LINES = 10
"""The largest number of lines about anomalies in the head of the report."""

GIST = 160
"""The largest number of characters of a summary in the head, unless its first clause is longer."""

_SENTENCE_END = re.compile(r"(?<=[.)]) (?=[A-Z])")
_ASIDE = re.compile(r" ?\([^()]*\)")


@dataclass(eq=False)
class Entry:
    """An event: the anomaly that names it, and those in which the same event shows.

    members  (checker, anomaly), the naming one first.
    """

    members: list[tuple[str, Anomaly]] = field(default_factory=list)

    @property
    def anomaly(self) -> Anomaly:
        return self.members[0][1]

    @property
    def checker(self) -> str:
        return self.members[0][0]


@dataclass(frozen=True)
class HeadLine:
    """All entries of one name in one line. also: the further names, with their numbers of cases. known: the findings
    that explain them; new: the names that no finding explains.
    """

    name: str
    cases: str
    meaning: str
    gist: str
    also: str
    known: str
    new: str
    counts: bool
    anchor: str


def entries(found: Sequence[tuple[str, Anomaly]], call_of: Mapping[int, Call]) -> list[Entry]:
    """The entries in the order of their first anomalies. call_of: index of an op -> its call."""
    also = _meanings()["told_also"]
    heads = [(pair, _Marks.of(pair[1], call_of)) for pair in found if pair[1].name in also]
    groups = {id(pair[1]): Entry([pair]) for pair, _ in heads}
    order: list[Entry] = []
    for pair in found:
        anomaly = pair[1]
        entry = groups.get(id(anomaly)) or next(_same(anomaly, heads, groups, call_of), None)
        if entry is None:
            order.append(Entry([pair]))
            continue
        if entry.anomaly is not anomaly:
            entry.members.append(pair)
        if entry not in order:
            order.append(entry)
    return order


def head_lines(found: Sequence[tuple[Entry, str]], judgement: Judgement) -> tuple[list[HeadLine], int]:
    """A line for each name, those that fail the run first, and the number of entries beyond `LINES` names. found: each
    entry with the anchor of its text on the page.
    """
    names: dict[tuple[str, bool], list[tuple[Entry, str]]] = {}
    for entry, anchor in found:
        names.setdefault((entry.anomaly.name, entry.anomaly.counts), []).append((entry, anchor))
    lines = [_line(group, judgement) for group in names.values()]
    return lines[:LINES], sum(len(group) for group in list(names.values())[LINES:])


def gist(summary: str) -> str:
    """The first sentence of a summary, without what it has in brackets.

    >>> gist("2 messages lost: n2 acknowledged them at 00:16 (queue a at 3, b at 4). Message 7 is on no replica.")
    '2 messages lost: n2 acknowledged them at 00:16.'
    """
    bare = summary
    while _ASIDE.search(bare):
        bare = _ASIDE.sub("", bare)
    bare = _SENTENCE_END.split(bare, maxsplit=1)[0].strip()
    clause, _, rest = bare.partition(": ")
    return text(bare if len(bare) <= GIST or not rest else f"{clause}.", 2 * GIST)


def _line(group: Sequence[tuple[Entry, str]], judgement: Judgement) -> HeadLine:
    (first, anchor), *_ = group
    new = () if judgement.new is None or not first.anomaly.counts else judgement.new
    findings: dict[str, None] = {}
    for entry, _ in group:
        for _, anomaly in entry.members:
            findings |= dict.fromkeys(f"finding {f.id}" for f in judgement.known_as(anomaly))
    return HeadLine(
        text(first.anomaly.name, 80),
        number(sum(entry.anomaly.cases for entry, _ in group)),
        meaning(first.anomaly.name),
        (f"The first of {number(len(group))}: " if len(group) > 1 else "") + gist(first.anomaly.summary),
        named(anomaly for entry, _ in group for _, anomaly in entry.members[1:]),
        ", ".join(findings),
        ", ".join(dict.fromkeys(text(a.name, 80) for e, _ in group for _, a in e.members if a.name in new)),
        first.anomaly.counts,
        anchor,
    )


def named(anomalies: Iterable[Anomaly]) -> str:
    """`7 dirty-read, 4 nonlinearizable`: the names of anomalies with their numbers of cases."""
    cases: dict[str, int] = {}
    for anomaly in anomalies:
        cases[anomaly.name] = cases.get(anomaly.name, 0) + anomaly.cases
    return ", ".join(f"{number(n)} {text(name, 80)}" for name, n in cases.items())


def meaning(name: str) -> str:
    """The meaning of an anomaly, as a sentence; empty for one that another package defines."""
    line = str(_meanings()["meaning"].get(name, ""))
    return f"{line[:1].upper()}{line[1:]}." if line else ""


def _same(
    anomaly: Anomaly,
    heads: Sequence[tuple[tuple[str, Anomaly], _Marks]],
    groups: Mapping[int, Entry],
    call_of: Mapping[int, Call],
) -> Iterator[Entry]:
    """Yields the entries of the same event."""
    also = _meanings()["told_also"]
    if not any(anomaly.name in names for names in also.values()):
        return
    mine = _Marks.of(anomaly, call_of)
    for (_, head), marks in heads:
        same_kind = (head.legal is None, head.doubt is None) == (anomaly.legal is None, anomaly.doubt is None)
        if anomaly.name in also[head.name] and same_kind and marks.meet(mine):
            yield groups[id(head)]


@dataclass(frozen=True)
class _Marks:
    """The marks of an event.

    ops      the operations that prove it. messages: (key, id) of the messages that these sent or received.
    acked    (key, offset) of the acknowledgements among them. offsets: key -> stretches of offsets of the event.
    """

    ops: frozenset[int]
    messages: frozenset[tuple[str | None, str]]
    acked: frozenset[tuple[str | None, int]]
    offsets: Mapping[str, Sequence[tuple[int, int]]]

    @staticmethod
    def of(anomaly: Anomaly, call_of: Mapping[int, Call]) -> _Marks:
        calls = [call for index in anomaly.ops if (call := call_of.get(index)) is not None]
        pairs = [(call, pair) for call in calls for pair in _pairs(call)]
        return _Marks(
            frozenset(call.invoke.index for call in calls),
            frozenset((call.invoke.key, str(id_)) for call, (_, id_) in pairs),
            frozenset((call.invoke.key, at) for call, (at, id_) in pairs if id_ == call.invoke.value),
            _stretches(anomaly.details.get("offsets")),
        )

    def meet(self, other: _Marks) -> bool:
        """True if both have an operation or a message in common, or if the other one acknowledges an offset of this."""
        named = ((self.offsets.get(key or "", ()), at) for key, at in other.acked)
        return bool(
            self.ops & other.ops
            or self.messages & other.messages
            or any(low <= at <= high for stretches, at in named for low, high in stretches)
        )


def _pairs(call: Call) -> Iterator[tuple[int, Any]]:
    """The offsets and ids in an answer: a send returns `[offset, id]`, a read a list of such pairs."""
    value: Any = None if call.completion is None else call.completion.value
    if not isinstance(value, list | tuple):
        return
    for pair in [value] if len(value) == 2 and value[1] == call.invoke.value else value:
        if isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], int):
            yield pair[0], pair[1]


def _stretches(value: object) -> Mapping[str, Sequence[tuple[int, int]]]:
    """`{queue: [[first, last], ...]}` of an anomaly's details, as far as it has this form."""
    if not isinstance(value, Mapping):
        return {}
    return {
        str(key): [(s[0], s[1]) for s in found if isinstance(s, list | tuple) and len(s) == 2 and _ints(s)]
        for key, found in value.items()
        if isinstance(found, list | tuple)
    }


def _ints(values: Sequence[object]) -> bool:
    return all(isinstance(value, int) for value in values)


@cache
def _meanings() -> dict[str, Any]:
    return tomllib.loads(files("results.report").joinpath("meanings.toml").read_text("utf-8"))
