# SPDX-License-Identifier: Apache-2.0
"""Packets of chosen links: drops a share of them, delays them, sends them twice.

Each fault is a value with its own name. An nftables table of that name selects and counts its packets
(`Selection.table`). Without this table the fault has no effect, so the heal deletes the table first. Several may be
held on one node, with packets in common too, and each heals alone.

Packets are dropped and delayed on arrival (hook `input`, before connection tracking), and copied when they are sent
(hook `postrouting`). The control program's SSH connection is left out of every selection.
"""

from __future__ import annotations

import json
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import ClassVar, Final, Literal
from uuid import uuid4

from infra.machines.api import InfraError, Lease, Node
from infra.machines.primitives.network import TABLE_PREFIX, control_connection, delete_table_argv, ipv4
from infra.machines.scripts import delayer

SCRATCH: Final = "192.0.2.1"
"""An address that no machine has (TEST-NET-1, RFC 5737), for the trial of a mechanism without any real packet."""

SHARES: Final = 10_000
"""A share of packets is a whole number of these."""

FIRST_QUEUE: Final = 4810
_QUEUES: Final = 15
_FIRST_BIT: Final = 16
"""Queue FIRST_QUEUE + i takes the packets with bit _FIRST_BIT + i of their mark set."""

_QUEUE_LIST: Final = "/proc/net/netfilter/nfnetlink_queue"
"""A line for each bound queue: its number, the process that bound it, ..."""

TIDY: Final = r"""
tidy_iptables() {   # removes the chain that iptables made for our rules, and its table, where nothing else is in them
    made=$(nft list table ip filter 2>/dev/null | grep -v '^#' | tr -s ' \t\n' ' ')
    bare='table ip filter { chain INPUT { type filter hook input priority filter; policy accept; } } '
    [ "$made" != "$bare" ] || nft 'delete chain ip filter INPUT; delete table ip filter' 2>/dev/null
    return 0        # (it cannot be deleted where a rule has come meanwhile)
}
"""

_UNHOOK = (
    TIDY
    + """
iptables -w 10 -C "$@" 2>/dev/null || exit 0
iptables -w 10 -D "$@" && tidy_iptables
"""
)

_DELAYER = """
delayer() {     # the process of this name that serves a queue
    while read -r queue pid _; do
        grep -zqxF -- "$2" "/proc/$pid/cmdline" && echo "$pid" && return 0
    done 2>/dev/null < "$1"
    return 1
}
"""

_FIND_DELAYER = (
    _DELAYER
    + """
delayer "$@"
exit 0
"""
)

_STOP_DELAYER = (
    _DELAYER
    + """
for i in $(seq 500); do     # 5 s
    pid=$(delayer "$@") || exit 0
    [ "$i" = 1 ] && kill -s TERM "$pid"
    [ "$i" = 300 ] && kill -s KILL "$pid"
    sleep 0.01
done
echo "the delayer $pid did not end"
exit 1
"""
)


SWEEP: Final = (
    TIDY
    + """
sweep_packets() {   # ends all packet faults whose names begin with $1
    for process in /proc/[0-9]*; do
        grep -zqs -- "^${1}delay_" "$process/cmdline" && kill -s TERM -- "${process#/proc/}"
    done
    command -v iptables > /dev/null && iptables -w 10 -S INPUT 2>/dev/null | while read -r _ rule; do
        case $rule in *" --comment $1"*) iptables -w 10 -D $rule && tidy_iptables ;; esac    # (no spaces in words)
    done
    command -v nft > /dev/null && nft list tables | while read -r _ family table; do
        case $table in "$1"*) ;; *) continue ;; esac
        root=$(nft list table "$family" "$table" | sed -n 's/.*meta priority set \\([0-9a-f]*:\\)1.*/\\1/p')
        [ -n "$root" ] && tc qdisc show | grep "^qdisc htb $root dev" | while read -r _ _ _ _ device _; do
            tc qdisc del dev "$device" root
        done
        nft delete table "$family" "$table"
    done
    return 0
}
"""
)
"""Shell function for `harness clean`: removes packet faults that their guards could not undo, as they were killed."""


@dataclass(frozen=True)
class Selection:
    """Packets of links.

    addresses  IPv4, of the other ends.
    ports      TCP and UDP packets that come from or go to one of these ports; empty: all packets.
    """

    addresses: Sequence[str]
    ports: Sequence[int] = ()

    def table(
        self,
        name: str,
        node: Node,
        hook: Literal["input", "postrouting"],
        action: Sequence[str],
        family: str = "inet",
    ) -> str:
        """The commands for nft(8) that make the table: the selected packets go through the chain `hit`, whose rules are
        `action`. Raises InfraError for an invalid address, or the node's own.
        """
        ends = [str(ipv4(address)) for address in dict.fromkeys(self.addresses)]
        bad = [address for address in ends if ipv4(address).is_loopback or address == node.address]
        if bad or not ends:
            raise InfraError(f"{node.name}: {bad[0] if bad else 'no address'} is no other end of a link")
        far, here, there = ("saddr", "dport", "sport") if hook == "input" else ("daddr", "sport", "dport")
        base = f"add rule {family} {name} {hook}"
        peers = f"ip {far} {{ {', '.join(ends)} }}"
        control, ssh = control_connection(node)
        spared = [f"{base} ip {far} {control} tcp {here} {ssh} accept"] if control in ends else []
        ports = ", ".join(str(port) for port in sorted(set(self.ports)))
        either = [f" meta l4proto {{ tcp, udp }} th {side} {{ {ports} }}" for side in (here, there)]
        return "\n".join(
            [
                f"add table {family} {name}",
                f"add chain {family} {name} {hook} {{ type filter hook {hook} priority -300; policy accept; }}",
                f"add chain {family} {name} hit",
                *spared,
                # `goto`: a packet that both rules select counts once.
                *(f"{base} {peers}{each} goto hit" for each in (either if ports else [""])),
                *(f"add rule {family} {name} hit {rule}" for rule in action),
            ]
        )


def share_of(percent: float) -> int:
    """A percentage as a number of `SHARES`, at least one."""
    return max(1, round(percent * SHARES / 100))


def only(share: int) -> list[str]:
    """The rule that lets all but a share of the packets pass, chosen at random, one by one."""
    return [] if share >= SHARES else [f"numgen random mod {SHARES} >= {share} accept"]


def new_name(kind: str) -> str:
    """A unique name, for a table and all that belongs to it."""
    return f"{TABLE_PREFIX}{kind}_{uuid4().hex[:8]}"


@dataclass(frozen=True)
class PacketFault(ABC):
    """A fault that acts on the packets of a selection on one node, under one lease."""

    kind: ClassVar[str]
    family: ClassVar[str] = "inet"
    needs: ClassVar[str] = "a kernel with nf_tables, and the Debian package nftables"
    selection: Selection
    name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", new_name(self.kind))

    @abstractmethod
    def hold(self, node: Node, ttl_s: float) -> Lease:
        """Injects the fault, under a lease. Raises InfraError; then nothing is left of it."""

    def counted(self, node: Node) -> int:
        """Packets that it has acted on so far; 0 if it is not held."""
        done = node.run(["nft", "-j", "list", "chain", self.family, self.name, "hit"], check=False)
        if done.code != 0:
            return 0
        expressions = [e for item in json.loads(done.text)["nftables"] for e in item.get("rule", {}).get("expr", ())]
        return max((int(e["counter"]["packets"]) for e in expressions if "counter" in e), default=0)

    def left(self, node: Node) -> list[str]:
        """The parts of the fault that are on the node, in words; empty if it is not held."""
        listed = node.run(["nft", "list", "tables"]).text.split()
        return [f"the table {self.name}"] if self.name in listed else []


@dataclass(frozen=True)
class Drop(PacketFault):
    """A share of the packets that arrive is dropped: `share` of 10,000."""

    kind: ClassVar[str] = "loss"
    share: int = SHARES

    def hold(self, node: Node, ttl_s: float) -> Lease:
        table = self.selection.table(self.name, node, "input", [*only(self.share), "counter drop"])
        return node.lease([["nft", table]], [delete_table_argv(self.name)], ttl_s=ttl_s)


@dataclass(frozen=True)
class Duplicate(PacketFault):
    """A share of the packets that are sent goes out twice. The kernel copies no copy, but these are counted as well.

    The table is of the family `ip`: in `inet` there is no `dup`.
    """

    kind: ClassVar[str] = "copy"
    family: ClassVar[str] = "ip"
    needs: ClassVar[str] = "a kernel with nft_dup_ipv4, and the Debian package nftables"
    share: int = SHARES

    def hold(self, node: Node, ttl_s: float) -> Lease:
        ends = ", ".join(f"{end} : {end}" for end in dict.fromkeys(self.selection.addresses))
        action = [*only(self.share), f"counter dup to ip daddr map {{ {ends} }}"]
        table = self.selection.table(self.name, node, "postrouting", action, self.family)
        return node.lease([["nft", table]], [delete_table_argv(self.name, self.family)], ttl_s=ttl_s)


@dataclass(frozen=True)
class Delay(PacketFault):
    """A share of the packets that arrive waits `delay_s`, plus or minus at most `jitter_s`; they overtake each other.

    The packets selected get a bit of the mark, by which iptables puts them into a netfilter queue, from which
    `infra.machines.scripts.delayer` lets them go (nftables' own `queue` is a module that kernels may lack). Several of
    these add up: each has a queue, and each bit is cleared by the delayer of its queue.
    """

    kind: ClassVar[str] = "delay"
    needs: ClassVar[str] = "a kernel with xt_NFQUEUE, and the Debian packages nftables, iptables and python3-minimal"
    delay_s: float = 0.0
    jitter_s: float = 0.0
    share: int = SHARES

    def hold(self, node: Node, ttl_s: float) -> Lease:
        place = _free_queue(node)
        queue, mark = FIRST_QUEUE + place, f"0x{1 << (_FIRST_BIT + place):x}"
        rule = ["INPUT", "-m", "mark", "--mark", f"{mark}/{mark}", "-m", "comment", "--comment", self.name]
        rule += ["-j", "NFQUEUE", "--queue-num", str(queue), "--queue-bypass"]
        times = [repr(self.delay_s), repr(self.jitter_s), repr(ttl_s + 5)]
        serve = ["python3", "-c", _delayer(), "delayer", self.name, str(queue), str(int(mark, 16)), *times]
        table = self.selection.table(
            self.name, node, "input", [*only(self.share), f"counter meta mark set meta mark or {mark}"]
        )
        undo = [
            delete_table_argv(self.name),
            ["sh", "-c", _UNHOOK, "unhook", *rule],
            ["sh", "-c", _STOP_DELAYER, "stop-delayer", _QUEUE_LIST, self.name],
        ]
        return node.lease([serve, ["iptables", "-w", "10", "-I", *rule], ["nft", table]], undo, ttl_s=ttl_s)

    def left(self, node: Node) -> list[str]:
        found = super().left(node)
        if self.name in node.run(["iptables", "-w", "10", "-S", "INPUT"], check=False).text:
            found.append("the rule for its queue")
        serving = node.run(["sh", "-c", _FIND_DELAYER, "find-delayer", _QUEUE_LIST, self.name]).text.strip()
        return [*found, f"the delayer {serving}"] if serving else found


@cache
def _delayer() -> str:
    return Path(delayer.__file__).read_text(encoding="utf-8")


def _free_queue(node: Node) -> int:
    """A place from 0 on, whose queue no process has bound. Raises InfraError if no place is free."""
    lines = node.run(["cat", _QUEUE_LIST], check=False).text.splitlines()
    taken = {int(line.split()[0]) - FIRST_QUEUE for line in lines if line.split()}
    free = [place for place in range(_QUEUES) if place not in taken]
    if not free:
        raise InfraError(f"{node.name}: {_QUEUES} faults delay packets there already; fewer at one time are right")
    return random.choice(free)
