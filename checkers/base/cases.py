# SPDX-License-Identifier: Apache-2.0
"""Cases of one kind of violation, and the anomaly that stands for them: one form for all judges that count cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from checkers.base.legality import Part
from checkers.base.timeline import RunTimeline, group_of
from results.figures import SECOND, many
from results.verdict import Anomaly

_LISTED: Final = 50
_LISTED_BY_NAME: Final = 20
_OPS_OF: Final = 5


class Case(NamedTuple):
    """One violation: its time (ns), the indices of the ops that prove it, and a description in one clause.

    key     the queue or topic, or None. group: the broker group, whose masters the text names; None: that of the queue,
            or all without one.
    name    that of the anomaly, if one judge collects cases of several.
    legal   the reason why it is permitted. limit: the longest duration (ns) that is allowed, of a case of time.
    details further facts for the case that is described in full. listed: the entry in the list of cases instead of
            the text.
    about   the subject, for the judge itself.
    """

    start: int
    end: int
    ops: Sequence[int]
    text: str = ""
    key: str | None = None
    group: str | None = None
    name: str = ""
    legal: str | None = None
    limit: int | None = None
    details: Mapping[str, Any] = MappingProxyType({})
    listed: Any = None
    about: Any = None

    @property
    def took(self) -> int:
        """Its duration (ns)."""
        return self.end - self.start

    @property
    def broker_group(self) -> str | None:
        return self.group or group_of(self.key or "")


def anomalies(
    scene: RunTimeline,
    name: str,
    cases: Sequence[Case],
    what: str,
    *,
    limit: int | None = None,
    legal: str | None = None,
    more: Mapping[str, Any] = MappingProxyType({}),
    whole: bool = False,
    text: Callable[[Case], Case] = lambda case: case,
) -> Iterator[Anomaly]:
    """Yields one anomaly for all cases of a kind; the first, or with a limit the longest, is described in full.

    what   the clause about all of them; `{n}` in it is their number, `{queues}` the number of their queues.
    limit  the longest duration (ns) that is allowed; None: that of the case described in full.
    legal  the reason why they are permitted. more: further details. whole: its time is that of all cases.
    text   adds the texts of a case, for the cases that are shown.
    """
    if not cases:
        return
    timed = limit is not None or cases[0].limit is not None
    first = max(cases, key=lambda case: case.took) if timed else cases[0]
    limit = first.limit if limit is None else limit
    ordered = [first, *(case for case in cases if case is not first)]
    first, *others = map(text, ordered[:_LISTED])
    keys = {case.key for case in cases}
    window = first.start, first.end
    if whole and limit is None:
        window = min(case.start for case in cases), max(case.end for case in cases)
    head = what.replace("{n}", f"{len(cases):,}").replace("{queues}", f"{len(keys):,}")
    yield Anomaly(
        name,
        f"{head}: {first.text}.{scene.describe(first.start, first.end, first.broker_group)}",
        first.key if len(keys) == 1 else None,
        sorted({op for case in (first, *cases[:_OPS_OF]) for op in case.ops}),
        window,
        {
            "count": len(cases),
            **first.details,
            "first": [case.text if case.listed is None else case.listed for case in (first, *others)],
            **more,
            **scene.details(*window, first.broker_group),
        },
        legal=legal,
        limit_s=None if limit is None else limit / SECOND,
    )


def of_parts(
    scene: RunTimeline, name: str, parts: Iterable[Part[Case]], what: str, **options: Any
) -> Iterator[Anomaly]:
    """Yields one of `anomalies` for each part of the cases: those that are permitted, and those that are not."""
    for part in parts:
        yield from anomalies(scene, name, part.cases, what, legal=part.legal, more=part.details, **options)


def by_group(
    scene: RunTimeline, name: str, cases: Sequence[Case], what: str, limit: int | None = None, **options: Any
) -> Iterator[Anomaly]:
    """Yields one of `anomalies` for each broker group with such cases, in order of their first case. A clause without
    the number of cases gets it at its end.
    """
    head = what if "{n}" in what else f"{what} ({{n}} cases)"
    for group in dict.fromkeys(case.group for case in cases):
        some = [case for case in cases if case.group == group]
        yield from anomalies(scene, name, some, head, limit=limit, **options)


def by_reason(
    name: str, cases: Sequence[Case], head: str, details: Mapping[str, Any], tail: str = ""
) -> Iterator[Anomaly]:
    """Yields one anomaly for each reason why these cases are permitted, and one for those that are not.

    head, tail  the begin and the end of the summary, around the first case. details: further ones.
    """
    for legal in dict.fromkeys(case.legal for case in cases):
        some = [case for case in cases if case.legal == legal]
        first = some[0]
        yield Anomaly(
            name,
            f"{head}: {first.text} ({many(len(some), 'case')}){tail}",
            first.key,
            sorted({op for case in some[:_OPS_OF] for op in case.ops}),
            (first.start, first.end),
            {**details, "cases": [case.text for case in some[:_LISTED_BY_NAME]]},
            legal=legal,
            limit_s=None if first.limit is None else first.limit / SECOND,
        )
