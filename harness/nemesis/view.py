"""Who is who when a fault strikes: which servers stand on which node, who leads, who is in sync.

A value, so that a fault's aim stays a pure function of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from harness.nemesis.targets import CONTROLLER_LEADER, LEADER, MASTER, NAMESRV, SLAVES
from infra.machines.api import Node
from infra.systems.api import Topology

CONTROLLER = "controller"
NAME_SERVER = "namesrv"


@dataclass(frozen=True)
class Scene:
    """The cluster as it was last seen.

    nodes       all nodes.
    servers     node -> kinds of servers that run there, in the order of their start.
    main        node -> the kind that holds its data; nodes without such a server are left out.
    groups      replica group -> its nodes.
    leaders     replica group -> who leads it (a broker group's master); groups without a known one are left out.
    in_sync     the nodes that the controllers' leader says are in sync; None: nobody says.
    controller_leader  the node of the controller that leads, where one is known.
    """

    nodes: Sequence[str]
    servers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    main: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    leaders: Mapping[str, str] = field(default_factory=dict)
    in_sync: Sequence[str] | None = None
    controller_leader: str | None = None

    @staticmethod
    def of(topology: Topology, nodes: Sequence[Node]) -> Scene:
        """What stands where; nobody's role is known yet."""
        main = {node.name: kind for node in nodes if (kind := topology.main(node)) is not None}
        servers = {node.name: tuple(topology.servers(node)) for node in nodes}
        return Scene([node.name for node in nodes], servers, main, dict(topology.groups()))

    def having(self, kind: str) -> list[str]:
        """The nodes on which a server of this kind runs."""
        return [node for node in self.nodes if kind in self.servers.get(node, ())]

    def group_of(self, node: str) -> list[str]:
        """All nodes of a node's replica group; [] where it is in none."""
        return next((list(members) for members in self.groups.values() if node in members), [])

    def cast(self, role: str, rng: Random) -> list[str]:
        """The nodes that a role of `harness.nemesis.targets` means now, in the order of `nodes`; [] while nobody has
        it.

        Of several masters, and of the name servers, it is one at random.
        """
        leaders = sorted(self.leaders.values())
        match role:
            case "leader" | "master":
                found = [rng.choice(leaders)] if leaders else []
            case "slaves":
                led = [node for group in self.leaders for node in self.groups.get(group, ())]
                found = [node for node in led if node not in leaders]
            case "controller-leader":
                found = [self.controller_leader] if self.controller_leader else []
            case "namesrv":
                there = self.having(NAME_SERVER)
                found = [rng.choice(there)] if there else []
            case _:
                raise ValueError(f"{role!r} is no role")
        return [node for node in self.nodes if node in found]

    def kinds(self, node: str, role: str | None) -> list[str]:
        """The kinds of servers on a node that a strike means: those of the role it aims at, else all of them."""
        match role:
            case None:
                return list(self.servers.get(node, ()))
            case "controller-leader":
                return [CONTROLLER]
            case "namesrv":
                return [NAME_SERVER]
        return [self.main[node]] if node in self.main else []

    def lacks(self, role: str) -> str | None:
        """Why nobody here can ever have this role, or None."""
        if role == NAMESRV and not self.having(NAME_SERVER):
            return "there are no name servers"
        if role == CONTROLLER_LEADER and not self._controllers():
            return "there are no controllers"
        if role in (LEADER, MASTER, SLAVES) and not self.main:
            return "no node holds data"
        return None

    def _controllers(self) -> bool:
        return bool(self.having(CONTROLLER)) or self.controller_leader is not None

    def labels(self, words: Mapping[str, str]) -> dict[str, str]:
        """Node -> its role in a word for people, for those that lead. `words`: `infra.systems.api.Topology.roles`."""
        said = dict.fromkeys(self.leaders.values(), words.get("leader", "leader"))
        if self.controller_leader is not None:
            before = said.get(self.controller_leader)
            said[self.controller_leader] = ", ".join(filter(None, (before, "controller leader")))
        return said
