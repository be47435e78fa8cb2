# SPDX-License-Identifier: Apache-2.0
"""Target expressions: the nodes or servers that a strike hits.

| expression | nodes hit                                                                             |
|------------|---------------------------------------------------------------------------------------|
| `one`      | one random node                                                                       |
| `minority` | the largest minority, chosen at random: 2 of 5, 1 of 4                                |
| `majority` | the smallest majority, chosen at random: 3 of 5, 3 of 4                               |
| `all`      | every node                                                                            |
| `random`   | a random non-empty set, mostly small: k nodes half as often as k-1 (as in Jepsen)     |
| `n1,n3`    | these                                                                                 |

A role stands for the servers that have it when the fault strikes. A fault of processes then hits that role's server
alone, and all servers of a node otherwise.

| role                  | who                                                                                      |
|-----------------------|------------------------------------------------------------------------------------------|
| `leader`, `master`    | the server that leads a replica group; of several groups, one at random                  |
| `followers`, `slaves` | all servers that follow a leader                                                         |
| `KIND`                | a random server of this kind: `namesrv`, `controller`, `broker`, `proxy`                 |
| `KIND-leader`         | the server of this kind that leads the others: `controller-leader`                       |
| `KIND-follower`       | a random server of this kind, without their leader: `controller-follower`                |
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Final

from harness.api import DATA, Target
from harness.cluster_view import ClusterView
from harness.plan.plan import PlanError
from infra.options import suggest

RANDOM: Final = "random"
GROUPS: Final = ("one", "minority", "majority", "all", RANDOM)
"""Words for a number of nodes."""
LEADER: Final = ("leader", "master")
FOLLOWERS: Final = ("followers", "slaves")
_LEADS: Final = "-leader"
_FOLLOWS: Final = "-follower"
_NODE: Final = re.compile(r"n[0-9]+")


def is_role(expression: str) -> bool:
    """True if it names a role, rather than nodes."""
    word = expression.strip()
    return word not in GROUPS and "," not in word and bool(word) and not _NODE.fullmatch(word)


def roles(kinds: Sequence[str], groups: bool = True) -> list[str]:
    """The possible roles, with servers of these kinds. groups: whether there are replica groups."""
    return [
        *((*LEADER, *FOLLOWERS) if groups else ()),
        *kinds,
        *(f"{kind}{word}" for kind in kinds for word in (_LEADS, _FOLLOWS)),
    ]


def check_role(role: str, kinds: Sequence[str], nodes: Sequence[str], where: str, groups: bool = True) -> None:
    """Raises PlanError for a role that no server can have. kinds: of the cluster's servers. groups: see `roles`."""
    if role not in roles(kinds, groups):
        if role in roles(()):
            raise PlanError(f"{where}: nobody is {role!r} without replica groups; {right(nodes, kinds, groups)}")
        near = suggest(role, [*GROUPS, *roles(kinds, groups), *nodes]) or "; " + right(nodes, kinds, groups)
        raise PlanError(f"{where}: no target {role!r}{near}")


def resolve(expression: str, nodes: Sequence[str], rng: Random, where: str = "target") -> list[str]:
    """The nodes that an expression chooses, in the order of `nodes`; `[]` for a role, known only when it strikes.

    Raises PlanError, which begins with `where`, for an unknown node, or an expression that chooses no node.
    """
    if is_role(expression):
        return []
    count = len(nodes)
    match expression.strip():
        case "one":
            size = 1
        case "minority":
            size = (count - 1) // 2
        case "majority":
            size = count // 2 + 1
        case "all":
            size = count
        case "random":
            size = _mostly_small(count, rng)
        case names:
            return _named(names, nodes, where)
    if size == 0:
        raise PlanError(f"{where}: {count} {'node has' if count == 1 else 'nodes have'} no minority; 'one' is right")
    chosen = set(rng.sample(list(nodes), size))
    return [node for node in nodes if node in chosen]


def nodes_with_role(role: str, view: ClusterView, rng: Random) -> Target:
    """The servers that have a role now; no nodes while no server has it."""
    if role in LEADER or role in FOLLOWERS:
        leaders = sorted(view.leaders.values())
        if role in LEADER:
            found = [rng.choice(leaders)] if leaders else []
        else:
            led = [node for group in view.leaders for node in view.groups.get(group, ())]
            found = [node for node in led if node not in leaders]
        return Target([node for node in view.nodes if node in found and node in view.main], DATA)
    if role.endswith(_LEADS):
        kind = role.removesuffix(_LEADS)
        return Target([view.leading[kind]] if kind in view.leading else [], kind)
    if role.endswith(_FOLLOWS):
        kind = role.removesuffix(_FOLLOWS)
        led = [node for node in view.having(kind) if kind in view.leading and node != view.leading[kind]]
        return Target([rng.choice(led)] if led else [], kind)
    there = view.having(role)
    return Target([rng.choice(there)] if there else [], role)


def target_kinds(view: ClusterView, node: str, target: Target) -> list[str]:
    """The kinds of servers on a node that a target means: just one, or all of them."""
    if target.kind is None:
        return list(view.servers.get(node, ()))
    if target.kind == DATA:
        return [view.main[node]] if node in view.main else []
    return [target.kind]


def _mostly_small(count: int, rng: Random) -> int:
    """1..count, each half as likely as the one before."""
    return rng.choices(range(1, count + 1), weights=[0.5**k for k in range(count)])[0]


def _named(names: str, nodes: Sequence[str], where: str) -> list[str]:
    requested = [name.strip() for name in names.split(",") if name.strip()]
    if not requested:
        raise PlanError(f"{where} is empty; {right(nodes)}")
    for name in requested:
        if name in GROUPS or (len(requested) > 1 and is_role(name) and name in roles(())):
            raise PlanError(f"{where}: {name!r} cannot be in a list of nodes; {right(nodes)}")
        if name not in nodes:
            raise PlanError(f"{where}: no target {name!r}{suggest(name, [*GROUPS, *nodes]) or '; ' + right(nodes)}")
    return [node for node in nodes if node in requested]


def right(nodes: Sequence[str], kinds: Sequence[str] = (), groups: bool = True) -> str:
    """The allowed targets, for an error line."""
    last = nodes[-1] if nodes else "n5"
    some = ",".join(dict.fromkeys((nodes[0] if nodes else "n1", last)))
    return f"one of {', '.join((*GROUPS, *roles(kinds, groups)))}, or nodes such as {some}"
