# SPDX-License-Identifier: Apache-2.0
"""Subnets: held by one cluster at a time, and never one that this machine already routes."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path

import pytest

from infra.machines import network
from infra.machines.api import InfraError
from infra.machines.network import POOL, routed, subnets

HEAD = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT"


def route(text: str, flags: str = "0001") -> str:
    """A line of /proc/net/route: addresses as the machine's own (little) byte order shows them."""
    net = IPv4Network(text)
    address, mask = (f"{int.from_bytes(a.packed, 'little'):08X}" for a in (net.network_address, net.netmask))
    return f"eth0\t{address}\t00000000\t{flags}\t0\t0\t0\t{mask}\t0\t0\t0"


def test_only_networks_inside_the_pool_count() -> None:
    lines = [HEAD, route("0.0.0.0/0"), route("192.0.2.0/24"), route("198.18.0.0/15", "0200"), route("198.18.7.0/24")]
    assert routed([*lines, route("198.19.255.0/25"), ""]) == [
        IPv4Network("198.18.7.0/24"),
        IPv4Network("198.19.255.0/25"),
    ]


def test_two_clusters_never_hold_the_same_subnet() -> None:
    one = next(subnets("run"))
    other = next(subnets("run"))
    try:
        assert one.network != other.network
        assert one.network.subnet_of(POOL)
        assert other.network.subnet_of(POOL)
    finally:
        one.release()
        other.release()
    again = next(subnets("run"))
    assert again.network == one.network  # given back, and drawn from the run id alone
    again.release()
    again.release()


def test_a_routed_subnet_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = next(subnets("run"))
    first.release()
    fake = tmp_path / "route"
    fake.write_text("\n".join([HEAD, route(str(first.network))]))
    monkeypatch.setattr(network, "_ROUTES", fake)
    second = next(subnets("run"))
    second.release()
    assert second.network != first.network


def test_when_all_are_routed_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "route"
    fake.write_text("\n".join([HEAD, route("198.18.0.0/16"), route("198.19.0.0/16")]))
    monkeypatch.setattr(network, "_ROUTES", fake)
    with pytest.raises(InfraError, match=r"no free /24 left in 198\.18\.0\.0/15: 2 routes"):
        next(subnets("run"))


def test_addresses() -> None:
    subnet = next(subnets("addresses"))
    try:
        prefix = str(subnet.network.network_address).removesuffix(".0")
        assert subnet.control == f"{prefix}.1"
        assert [subnet.node(i) for i in (0, 4)] == [f"{prefix}.11", f"{prefix}.15"]
        with pytest.raises(InfraError, match="1 to 200"):
            subnet.node(200)
    finally:
        subnet.release()
