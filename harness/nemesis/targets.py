"""Target expressions: which nodes a strike hits.

| expression | nodes hit                                                                             |
|------------|---------------------------------------------------------------------------------------|
| `one`      | one random node                                                                       |
| `minority` | the largest minority, chosen at random: 2 of 5, 1 of 4                                |
| `majority` | the smallest majority, chosen at random: 3 of 5, 3 of 4                               |
| `all`      | every node                                                                            |
| `random`   | a random non-empty set, mostly small: k nodes half as often as k-1 (as in Jepsen)     |
| `n1,n3`    | these                                                                                 |

Roles mean whoever has them when the fault strikes. A fault of processes then hits that role's server alone, and all
servers of a node otherwise.

| role                | who                                                                          |
|---------------------|------------------------------------------------------------------------------|
| `leader`, `master`  | the broker (or DLedger server) that leads; of several groups, one at random  |
| `slaves`            | all brokers that follow a master                                             |
| `controller-leader` | the controller that leads the controllers                                    |
| `namesrv`           | a random name server                                                         |
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from harness.plan.plan import PlanError, suggest

LEADER: Final = "leader"
MASTER: Final = "master"
SLAVES: Final = "slaves"
CONTROLLER_LEADER: Final = "controller-leader"
NAMESRV: Final = "namesrv"
ROLES: Final = (LEADER, MASTER, SLAVES, CONTROLLER_LEADER, NAMESRV)
RANDOM: Final = "random"
WORDS: Final = ("one", "minority", "majority", "all", RANDOM, *ROLES)


def resolve(expression: str, nodes: Sequence[str], rng: Random, where: str = "target") -> list[str]:
    """The nodes that an expression chooses, in the order of `nodes`; `[]` for a role, known only when it strikes.

    Raises PlanError, which begins with `where`, for an unknown word or node, or an expression that chooses nobody.
    """
    count = len(nodes)
    match expression.strip():
        case role if role in ROLES:
            return []
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


def _mostly_small(count: int, rng: Random) -> int:
    """1..count, each half as likely as the one before."""
    return rng.choices(range(1, count + 1), weights=[0.5**k for k in range(count)])[0]


def _named(names: str, nodes: Sequence[str], where: str) -> list[str]:
    asked = [name.strip() for name in names.split(",") if name.strip()]
    if not asked:
        raise PlanError(f"{where} is empty; {_right(nodes)}")
    for name in asked:
        if name in WORDS:
            raise PlanError(f"{where}: {name!r} cannot stand in a list of nodes; {_right(nodes)}")
        if name not in nodes:
            raise PlanError(f"{where}: no target {name!r}{suggest(name, [*WORDS, *nodes]) or '; ' + _right(nodes)}")
    return [node for node in nodes if node in asked]


def _right(nodes: Sequence[str]) -> str:
    last = nodes[-1] if nodes else "n5"
    return f"one of {', '.join(WORDS)}, or nodes such as {','.join(dict.fromkeys((nodes[0] if nodes else 'n1', last)))}"
