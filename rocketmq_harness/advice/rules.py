# SPDX-License-Identifier: Apache-2.0
"""The meaning of an acknowledgement, and the number of losses that it survives by the rule (`rules.toml`).

A message is in the page cache of a replica that *has* it. So it outlives the process, and not the machine. The rule is
not what the servers do: the findings, and the runs, are in `rocketmq_harness.advice.advice`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Literal

from harness.plan.table import Table
from results.reading import read_toml
from rocketmq_harness.advice.setup import CONTROLLED, RAFT, Setup

Successor = Literal["fixed", "holder", "any", "majority"]

ANY: Final = "any number"
UNKNOWN: Final = "not known"
LOSSES: Final = ("process", "machine", "power", "disk", "link")


@dataclass(frozen=True)
class Rule:
    """One rule of `rules.toml`."""

    topologies: Sequence[str]
    when: Mapping[str, str]
    means: str
    source: str
    copies: str
    successor: str


@dataclass(frozen=True)
class Promise:
    """An acknowledgement by the rule.

    copies    replicas that have the message at least; None: the file does not say (a slave's), or no send succeeds.
    survives  loss -> (number of losses, why), where the number may be `ANY` or `UNKNOWN`.
    """

    means: str
    source: str
    copies: int | None
    survives: Mapping[str, tuple[str, str]]


@cache
def rules() -> Sequence[Rule]:
    """The rules in their order. Raises PlanError, OSError, ValueError for a wrong file."""
    path = Path(__file__).with_name("rules.toml")
    table = Table(read_toml(path), str(path), "")
    found = []
    for entry in table.tables("rule"):
        texts = {key: entry.get(key, str, "") for key in ("means", "source", "copies", "successor")}
        when = {str(name): str(value) for name, value in entry.get("when", dict, {}).items()}
        found.append(Rule(entry.strings("topologies"), when, **texts))
        entry.reject_unknown()
    table.reject_unknown()
    return found


def promise(setup: Setup) -> Promise:
    """The promise of an acknowledgement with these settings."""
    if setup.mode not in (CONTROLLED, RAFT) and setup["brokerRole"] == "SLAVE":
        means = "this is the file of a slave; the settings of its master decide. Give the master's file"
        return Promise(means, "", None, dict.fromkeys(LOSSES, (UNKNOWN, "the master's settings decide")))
    rule = next(
        rule
        for rule in rules()
        if setup.mode in rule.topologies and all(setup[name] == value for name, value in rule.when.items())
    )
    copies = _copies(setup, rule)
    source = rule.source or "docs/quorum-ack.md"
    if copies > setup.replicas:
        why = f"it needs {copies} replicas, and a group has {setup.replicas}: no send is acknowledged"
        return Promise(f"{rule.means}; {why}", source, None, dict.fromkeys(LOSSES, (UNKNOWN, why)))
    return Promise(rule.means, source, copies, _survives(setup, rule, copies))


def _copies(setup: Setup, rule: Rule) -> int:
    if rule.copies == "majority":
        return setup.replicas // 2 + 1
    return int(rule.copies) if rule.copies.isdigit() else max(1, setup.number(rule.copies))


def _survives(setup: Setup, rule: Rule, copies: int) -> dict[str, tuple[str, str]]:
    """Loss -> number and reason. See `Rule.successor`."""
    unclean = setup.of_controller("enableElectUncleanMaster") if setup.mode == CONTROLLED else "false"
    synced = setup["flushDiskType"] == "SYNC_FLUSH" and setup.mode != RAFT
    if rule.successor == "any" or unclean == "true":
        why = "the controllers may elect a replica that lacks the message"
        if unclean == "true":
            why += " (`enableElectUncleanMaster=true`)"
        return dict.fromkeys(LOSSES, ("0", why))
    others = copies - 1
    if rule.successor == "majority":
        others = (setup.replicas - 1) // 2
        power = str(others), "at one instant, for DLedger syncs its log on a timer, so a majority without power loses"
    elif rule.successor == "fixed":
        power = (
            (ANY, "it is on the master's disk, and the master serves again")
            if synced
            else ("0", "ASYNC_FLUSH: the master comes back without its last messages, also where slaves have them")
        )
    else:
        power = (
            str(others),
            "at one instant, for the other copies are in memory. If all fail together, "
            + (
                "the master alone has it on its disk, and the controllers may elect another one (not measured)"
                if synced
                else "the last messages are lost (ASYNC_FLUSH)"
            ),
        )
    cached = (ANY, "what a process has written to its files outlives it")
    if setup["transientStorePoolEnable"] == "true" and setup["writeWithoutMmap"] != "true" and setup.mode != RAFT:
        cached = UNKNOWN, "`transientStorePoolEnable`: a message may still be in a buffer of the process"
        power = UNKNOWN, cached[1]
    clean = "" if unclean is not None else "; if the controllers do not have `enableElectUncleanMaster=true`"
    held = {
        "fixed": "the slaves that have it; an operator must make the right one the master",
        "holder": "any of the other members of the SyncStateSet may be elected",
        "majority": "a majority elects a replica that has it; without a majority nobody serves",
    }[rule.successor]
    cut = {
        "fixed": "nobody else becomes master",
        "holder": "a master that is cut off waits for all members of the set, and acknowledges nothing",
        "majority": "a leader without a majority acknowledges nothing",
    }[rule.successor]
    if others == 0:
        held = "no other replica must have it"
    return {
        "process": (cached[0], cached[1] + clean),
        "machine": (str(others), held + clean),
        "power": (power[0], power[1] + clean),
        "disk": (str(others), f"a disk that is gone; {held}{clean}"),
        "link": (ANY, cut + clean),
    }
