# SPDX-License-Identifier: Apache-2.0
"""Networks: cuts a node off from others, and probes the effect.

Packet rules are in separate nftables tables, one per lease. Overlapping faults therefore heal independently, and
foreign rules are never changed.
"""

from __future__ import annotations

import ipaddress
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

from infra.machines.api import InfraError, Lease, Node

TABLE_PREFIX = "harness_"
"""The prefix of all nftables tables of the harness (family inet, or ip), and of no other program's."""

_CUT: Final = f"{TABLE_PREFIX}drop_"
"""The prefix of the tables of `drop_packets`."""

SSH_PORT: Final = 22

PROBE_PORT = 9
"""UDP port of the probes: `discard` (RFC 863)."""

_PROBE = 'printf harness > "/dev/udp/$1/$2"'


def drop_packets(node: Node, sources: Sequence[str], ttl_s: float) -> Lease:
    """Makes the node drop packets from these IPv4 addresses: one direction, established connections included.

    Dropped on arrival (hook `input`, priority -300: before connection tracking) and never on sending, where a program
    would see an error that no real network makes. A table per lease, so overlapping faults heal independently; the heal
    is one command that deletes just that table. Raises InfraError for an address that would cut the control program
    off.
    """
    control = control_address(node)
    rules = []
    for source in dict.fromkeys(sources):
        address = ipv4(source)
        if address.is_loopback or str(address) == control:
            raise InfraError(f"{node.name}: {source} cannot be cut off: the control program uses this connection")
        rules.append(str(address))
    if not rules:
        raise InfraError(f"{node.name}: no addresses to cut off")
    table = f"{_CUT}{uuid4().hex[:8]}"
    # One command is one transaction: all of it or nothing.
    cut = "\n".join(
        [
            f"add table inet {table}",
            f"add chain inet {table} input {{ type filter hook input priority -300; policy accept; }}",
            *(f"add rule inet {table} input ip saddr {address} counter drop" for address in rules),
        ]
    )
    return node.lease([["nft", cut]], [delete_table_argv(table)], ttl_s=ttl_s)


def delete_table_argv(table: str, family: str = "inet") -> list[str]:
    """The argv that deletes a table, whether it exists or not: the `add` makes it idempotent, atomically."""
    return ["nft", f"add table {family} {table}\ndelete table {family} {table}"]


def own_tables(node: Node) -> list[str]:
    """Names of the harness' tables on the node; empty if no packet fault is held there."""
    found = _nft(node, "tables")
    return [table["name"] for table in (item.get("table") for item in found) if table and _ours(table, "name")]


def dropped(node: Node) -> dict[str, int]:
    """Packets that `drop_packets` dropped so far, per source address, over all of its faults now held on the node."""
    packets: Counter[str] = Counter()
    for item in _nft(node, "ruleset"):
        rule = item.get("rule")
        if not rule or not _ours(rule, "table", _CUT):
            continue
        source, count = "", 0
        for part in rule["expr"]:
            source = part["match"]["right"] if "match" in part else source
            count = part["counter"]["packets"] if "counter" in part else count
        packets[source] += count
    return dict(packets)


def send_probe(node: Node, to_address: str) -> None:
    """Sends one UDP datagram from the node to another's discard port, for a rule there to drop and count."""
    node.run(["bash", "-c", _PROBE, "probe", str(ipv4(to_address)), str(PROBE_PORT)])


def control_address(node: Node) -> str:
    """The address of this control program as the node sees it; empty if the node does not report it."""
    return control_connection(node)[0]


def control_connection(node: Node) -> tuple[str, int]:
    """The control program's address as the node sees it, and the node's port that it is connected to; an empty address
    if the node does not report it.
    """
    output = node.run(["printenv", "SSH_CONNECTION"], check=False).text.split()
    return (output[0], int(output[3])) if len(output) == 4 else ("", SSH_PORT)


def ipv4(text: str) -> ipaddress.IPv4Address:
    """The address in a text. Raises InfraError for an invalid one."""
    try:
        return ipaddress.IPv4Address(text)
    except ValueError as error:
        raise InfraError(f"{text!r} is not an IPv4 address") from error


def _nft(node: Node, what: str) -> list[Mapping[str, Any]]:
    output = node.run(["nft", "-j", "list", what, "inet"]).text
    listed: list[Mapping[str, Any]] = json.loads(output)["nftables"] if output.strip() else []
    return listed


def _ours(item: Mapping[str, Any], field: str, prefix: str = TABLE_PREFIX) -> bool:
    return item["family"] == "inet" and str(item[field]).startswith(prefix)
