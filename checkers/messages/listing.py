# SPDX-License-Identifier: Apache-2.0
"""The members of broker groups as the name servers listed them (`members` ops, 901)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from results.history import Call, History
from results.op import OK

MASTER: Final = "0"
"""The master's broker id."""

FOREVER: Final = 2**62


class Period(NamedTuple):
    """A time in which a majority of the name servers listed a node, by their last answers (ns)."""

    start: int
    end: int


@dataclass
class _Answers:
    """Answers of a name server about a group, in order of their ends. `members`: broker id -> node; None: no answer."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    members: list[Mapping[str, str] | None] = field(default_factory=list)


class Listing:
    """Every answer of every name server."""

    def __init__(self, history: History) -> None:
        self._answers: dict[str, dict[str, _Answers]] = {}
        calls = [c for c in history.clients.calls if c.invoke.f == "members" and c.completion is not None]
        for call in sorted(calls, key=lambda c: c.end or 0):
            self._add(call)
        self.masters: dict[str, str] = {}
        """Group -> the node that was first listed as its master."""
        for group, servers in self._answers.items():
            told = (m for answers in servers.values() for m in answers.members if m is not None)
            named = next((m[MASTER] for m in told if MASTER in m), None)
            if named is not None:
                self.masters[group] = named

    def _add(self, call: Call) -> None:
        done = call.completion
        assert done is not None
        server = str(call.invoke.extra.get("name_server"))
        answers = self._answers.setdefault(str(call.invoke.key), {}).setdefault(server, _Answers())
        answers.starts.append(call.start)
        answers.ends.append(done.time)
        answers.members.append(dict(done.value) if done.type == OK else None)

    @property
    def answers(self) -> int:
        """The number of answers."""
        return sum(len(a.ends) for servers in self._answers.values() for a in servers.values())

    @property
    def groups(self) -> Sequence[str]:
        """The groups that clients requested."""
        return sorted(self._answers)

    def servers(self, group: str) -> Sequence[str]:
        """The name servers that got requests about a group."""
        return sorted(self._answers.get(group, {}))

    def told(self, group: str, server: str) -> list[tuple[int, int, Mapping[str, str]]]:
        """(invoked, answered, members) of the answers of one name server."""
        a = self._answers.get(group, {}).get(server, _Answers())
        return [(s, e, m) for s, e, m in zip(a.starts, a.ends, a.members, strict=True) if m is not None]

    def periods(self, group: str, node: str) -> list[Period]:
        """The times in which a majority of the name servers listed a node; one that does not answer lists no node."""
        servers = self._answers.get(group, {})
        events = sorted(
            (end, name, members is not None and node in members.values())
            for name, answers in servers.items()
            for end, members in zip(answers.ends, answers.members, strict=True)
        )
        listed: dict[str, bool] = {}
        found: list[Period] = []
        since: int | None = None
        for end, name, there in events:
            listed[name] = there
            majority = 2 * sum(listed.values()) > len(servers)
            if majority and since is None:
                since = end
            elif not majority and since is not None:
                found.append(Period(since, end))
                since = None
        return found if since is None else [*found, Period(since, FOREVER)]

    def unlisted(self, group: str, node: str, start: int, end: int) -> bool:
        """True if the last answer of each name server before `start`, and the first after `end`, lack a node."""
        servers = self._answers.get(group, {})
        for answers in servers.values():
            before = bisect_right(answers.ends, start) - 1
            after = bisect_left(answers.starts, end)
            if before < 0 or after >= len(answers.starts):
                return False
            near = answers.members[before], answers.members[after]
            if any(members is None or node in members.values() for members in near):
                return False
        return bool(servers)

    def listed(self, group: str, nodes: Iterable[str], start: int, end: int) -> set[str]:
        """Those of some nodes that a majority of the name servers listed all the time between two times."""
        return {n for n in nodes if any(p.start <= start and end <= p.end for p in self.periods(group, n))}
