# SPDX-License-Identifier: Apache-2.0
"""The configuration centre of the platform: the operator's decisions, which its clients see at once.

It is in this process. The published scheme names such a centre (`graySwitch`, `grayFlag`), without details.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Centre:
    """The centre of one run; one event loop.

    colours    member -> True if it is to be gray. A member is an instance of the application (`m0`); each time it joins
               the group it has a new client id.
    clients    member -> its client id, while it is in the group.
    sending    True if gray producers send. open: the number of gray sends under way.
    turned     members whose colour was changed: they rebalance at once, the others at their next time.
    returned   ids of messages that a member has failed to process, once each.
    restarts   members that are to leave and join again. joins: member -> the number of its joins.
    """

    colours: dict[str, bool]
    clients: dict[str, str] = field(default_factory=dict)
    sending: bool = True
    open: int = 0
    turned: set[str] = field(default_factory=set)
    returned: set[int] = field(default_factory=set)
    restarts: set[str] = field(default_factory=set)
    joins: Counter[str] = field(default_factory=Counter)
    _version: int = 0

    @staticmethod
    def of(members: int, gray: int) -> Centre:
        """Members `m0`, `m1`, ...; the first ones are gray."""
        return Centre({f"m{n}": n < gray for n in range(members)})

    @property
    def grays(self) -> frozenset[str]:
        """The members that are to be gray."""
        return frozenset(member for member, gray in self.colours.items() if gray)

    def version(self) -> int:
        """The version of the next flag: higher than all before it."""
        self._version += 1
        return self._version

    def client_id(self, member: str) -> str:
        """A new client id, which no member had."""
        self.joins[member] += 1
        return f"{member}-{self.joins[member]:04d}"

    async def quiet(self, limit_s: float) -> bool:
        """Waits until no gray send is under way. False if one still is after the limit."""
        loop = asyncio.get_running_loop()
        end = loop.time() + limit_s
        while self.open and loop.time() < end:
            await asyncio.sleep(0.02)
        return not self.open
