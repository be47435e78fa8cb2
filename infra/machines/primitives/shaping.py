# SPDX-License-Identifier: Apache-2.0
"""Bandwidth: limits the rate at which a node sends to some others.

A token bucket (tbf) behind one class of a queueing discipline htb at the node's interface; htb lets all other packets
pass at once. An nftables table (`infra.machines.primitives.packets`) puts the selected packets into that class, by
their priority. An interface has one root, so only one of these is held there at a time.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import ClassVar, Final

from infra.machines.api import InfraError, Lease, Node
from infra.machines.primitives.network import delete_table_argv
from infra.machines.primitives.packets import PacketFault

LATENCY_MS: Final = 400
"""The longest wait of a packet; one that would wait longer is dropped."""

_BURST_S: Final = 0.01
_LEAST_BURST: Final = 6000
_DEFAULTS: Final = ("noqueue", "mq", "pfifo_fast", "fq_codel", "fq", "pfifo")
"""Disciplines that the kernel sets by itself; they replace a deleted root."""

_RATE: Final = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)(kbit|mbit|gbit)")
_BITS: Final = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}

_SHAPE = """
device=$1 handle=$2 rate=$3 burst=$4 latency=$5
tc qdisc add dev "$device" root handle "$handle" htb || exit 1
tc class add dev "$device" parent "$handle" classid "${handle}1" htb rate 100gbit quantum 60000 || exit 1
tc qdisc add dev "$device" parent "${handle}1" tbf rate "$rate" burst "$burst" latency "$latency"
"""

_RESET = """
tc qdisc show dev "$1" root | grep -q "^qdisc htb $2 root" || exit 0
tc qdisc del dev "$1" root
"""


def bits_per_second(rate: str) -> float:
    """`1.5mbit` -> 1,500,000. Raises ValueError."""
    found = _RATE.fullmatch(rate)
    if not found or float(found[1]) == 0:
        raise ValueError(f"rate is {rate!r}; a number with kbit, mbit or gbit is right, such as '1mbit'")
    return float(found[1]) * _BITS[found[2]]


class Occupied(InfraError):
    """The interface has a queueing discipline that is not the kernel's own choice."""


@dataclass(frozen=True)
class Shape(PacketFault):
    """The selected packets, all together, are sent at no more than `rate` (as tc(8) writes it)."""

    kind: ClassVar[str] = "rate"
    needs: ClassVar[str] = "a kernel with sch_htb and sch_tbf, and the Debian packages nftables and iproute2"
    rate: str = "1mbit"

    def hold(self, node: Node, ttl_s: float) -> Lease:
        """Injects the limit. Raises Occupied if the interface has a discipline already (another limit, say)."""
        device = _device(node, self.selection.addresses[0])
        listed = json.loads(node.run(["tc", "-j", "qdisc", "show", "dev", device, "root"]).text or "[]")
        foreign = [str(one["kind"]) for one in listed if one["kind"] not in _DEFAULTS]
        if foreign:
            raise Occupied(f"{node.name}: {device} has the queueing discipline {foreign[0]} already")
        burst = max(_LEAST_BURST, round(bits_per_second(self.rate) / 8 * _BURST_S))
        shape = ["sh", "-c", _SHAPE, "shape", device, self._handle, self.rate, str(burst), f"{LATENCY_MS}ms"]
        action = [f"counter meta priority set {self._handle}1"]
        table = self.selection.table(self.name, node, "postrouting", action)
        undo = [delete_table_argv(self.name), ["sh", "-c", _RESET, "reset", device, self._handle]]
        return node.lease([shape, ["nft", table]], undo, ttl_s=ttl_s)

    def left(self, node: Node) -> list[str]:
        shown = node.run(["tc", "qdisc", "show"]).text
        queue = [f"the queueing discipline {self._handle}"] if f"qdisc htb {self._handle} dev" in shown else []
        return super().left(node) + queue

    @property
    def _handle(self) -> str:
        """The handle of the root, from 1: to fff0:. Each name has its own, as far as so few digits allow."""
        return f"{int(self.name.rpartition('_')[2], 16) % 0xFFF0 + 1:x}:"


def _device(node: Node, address: str) -> str:
    """The interface through which the node reaches an address. Raises InfraError if none does."""
    words = node.run(["ip", "-o", "route", "get", address], check=False).text.split()
    if "dev" not in words:
        raise InfraError(f"{node.name}: no interface leads to {address}")
    return words[words.index("dev") + 1]
