# SPDX-License-Identifier: Apache-2.0
"""Judges a set that converges: no element of an acknowledged add is missing in a final read, and none is from nowhere.

An element is *known* from the first answer that shows it before the final reads began: that of its add, or of a read
that has it (as in `jepsen.checker/set-full`). Every final read has all known elements. An element of an add of unknown
outcome that was not known by then may be in some final reads and not in others, if it comes late: then it is open if
all nodes agree, and the verdict is `unknown`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from checkers.converging.final_reads import FinalReads
from checkers.converging.findings import Findings
from checkers.linearizability.models.specification import show
from checkers.linearizability.models.values import freeze
from results.history import Call
from results.op import FAIL, OK
from results.verdict import Anomaly

_PLAIN = frozenset({int, str})


def judge_set(key: str | None, calls: Sequence[Call], finals: FinalReads) -> Findings:
    """The findings for one set. Raises ValueError for a read that is no list.

    Takes time in proportion to the elements that the reads list, and n log n for n calls.
    """
    adds = [call for call in calls if call.invoke.f != "read"]
    shown = {call.invoke.index: _elements(call) for call in calls if call.invoke.f == "read" and call.outcome == OK}
    answered = [call for call in calls if call.invoke.index in shown]
    element_of = {call.invoke.index: freeze(call.invoke.value) for call in adds}
    foreign = _from_nowhere(key, calls, element_of, shown)
    known: dict[Hashable, int] = {}
    for call in adds:
        if call.outcome == OK:
            known.setdefault(element_of[call.invoke.index], call.invoke.index)
    possible = {element_of[call.invoke.index]: call.invoke.index for call in reversed(adds) if call.outcome != FAIL}
    acknowledged = len(known)
    for call in answered:
        if call.completion is not None and call.completion.index < finals.begin:
            known |= {e: possible[e] for e in shown[call.invoke.index].difference(known) if e in possible}
    lost = list(_lost(key, known, finals.reads, shown)) if finals.reads else []
    late = {e for call in finals.reads for e in shown[call.invoke.index] if e in possible and e not in known}
    disputed = len(set().union(*(late - shown[call.invoke.index] for call in finals.reads)))
    doubt = (
        f"{disputed:,} elements of adds of unknown outcome are in some final reads and not in others: "
        "they came late, or not all nodes converge"
    )
    notes = {
        "{:,} elements of adds of unknown outcome are in the final reads": len(late) + len(known) - acknowledged,
        "{:,} reads list an element more than once": sum(
            len(shown[call.invoke.index]) < len(call.completion.value) for call in answered if call.completion
        ),
    }
    return Findings([*foreign, *lost], doubt if disputed else "", acknowledged, notes)


def _elements(call: Call) -> set[Hashable]:
    value: Any = call.completion.value if call.completion is not None else None
    if not isinstance(value, list):
        raise ValueError(
            f"the result of a read (op {call.invoke.index}) is the list of all elements, not {show(value)}"
        )
    return set(value) if _PLAIN.issuperset(map(type, value)) else set(map(freeze, value))


def _from_nowhere(
    key: str | None, calls: Sequence[Call], element_of: dict[int, Hashable], shown: dict[int, set[Hashable]]
) -> Iterator[Anomaly]:
    """Yields each element that a read shows although no add of it that may have happened was invoked by then."""
    moments = []
    for call in calls:
        if call.invoke.index in shown and call.completion is not None:
            moments.append((call.completion.index, call))
        elif call.invoke.index in element_of and call.outcome != FAIL:
            moments.append((call.invoke.index, call))
    adds: dict[Hashable, list[Call]] = {}
    for call in calls:
        if call.invoke.index in element_of:
            adds.setdefault(element_of[call.invoke.index], []).append(call)
    added: set[Hashable] = set()
    named: set[Hashable] = set()
    for _, call in sorted(moments, key=lambda moment: moment[0]):
        at = call.invoke.index
        if at in element_of:
            added.add(element_of[at])
            continue
        for element in sorted(shown[at] - added - named, key=repr):
            named.add(element)
            others = adds.get(element, [])
            why = "no add of it is in the history"
            if others and all(add.outcome == FAIL for add in others):
                why = f"its add failed (op {others[0].invoke.index})"
            elif others:
                why = f"its add began later (op {next(o for o in others if o.outcome != FAIL).invoke.index})"
            ops = (*(other.invoke.index for other in others[:1]), at)
            yield Anomaly(
                "never-added", f"element {show(element)} was read (op {at}), but {why}", key, tuple(sorted(ops))
            )


def _lost(
    key: str | None, known: dict[Hashable, int], reads: Sequence[Call], shown: dict[int, set[Hashable]]
) -> Iterator[Anomaly]:
    """Yields each known element that some final read lacks."""
    lacking: dict[Hashable, list[Call]] = {}
    for call in reads:
        for element in known.keys() - shown[call.invoke.index]:
            lacking.setdefault(element, []).append(call)
    for element, without in sorted(lacking.items(), key=lambda item: known[item[0]]):
        first, add = without[0].invoke, known[element]
        if len(without) == len(reads):
            which = f"in none of {len(reads)} final reads" if len(reads) > 1 else "not in the final read"
        else:
            which = f"not in {len(without)} of {len(reads)} final reads"
        where = f"op {first.index} of process {first.process}{_at_node(without[0])}"
        text = f"element {show(element)} was added (op {add}) and is {which} ({where})"
        yield Anomaly("lost-element", text, key, (add, first.index), (first.time, without[-1].end or first.time))


def _at_node(call: Call) -> str:
    done = call.completion
    node = call.invoke.extra.get("node") or (done.extra.get("node") if done is not None else None)
    return f" at {node}" if isinstance(node, str) else ""
