# SPDX-License-Identifier: Apache-2.0
"""Rules, messages and figures of packet faults, without any packet."""

from __future__ import annotations

import struct

import pytest
from noting_nodes import NotingNode

from infra.machines.api import Completed, InfraError
from infra.machines.primitives.datagrams import Burst
from infra.machines.primitives.packets import SHARES, Drop, Selection, new_name, only, share_of
from infra.machines.primitives.shaping import bits_per_second
from infra.machines.scripts import datagrams, delayer


class Connected(NotingNode):
    """A node that the control program reaches from 198.18.0.9, on port 2222."""

    def run(self, argv, *, check=True, **more):  # type: ignore[no-untyped-def]
        if list(argv) == ["printenv", "SSH_CONNECTION"]:
            return Completed(argv, 0, b"198.18.0.9 40000 198.18.0.1 2222\n", b"", 0.0)
        return super().run(argv, check=check, **more)


NODE = Connected("n1", "198.18.0.1")


def test_the_table_of_all_packets() -> None:
    assert Selection(["198.18.0.2", "198.18.0.3"]).table("t", NODE, "input", ["counter drop"]).splitlines() == [
        "add table inet t",
        "add chain inet t input { type filter hook input priority -300; policy accept; }",
        "add chain inet t hit",
        "add rule inet t input ip saddr { 198.18.0.2, 198.18.0.3 } goto hit",
        "add rule inet t hit counter drop",
    ]


def test_the_connection_of_the_control_program_is_left_out() -> None:
    selection = Selection(["198.18.0.9"], [80, 22])
    come = selection.table("t", NODE, "input", ["counter drop"]).splitlines()
    assert come[3:6] == [
        "add rule inet t input ip saddr 198.18.0.9 tcp dport 2222 accept",
        "add rule inet t input ip saddr { 198.18.0.9 } meta l4proto { tcp, udp } th dport { 22, 80 } goto hit",
        "add rule inet t input ip saddr { 198.18.0.9 } meta l4proto { tcp, udp } th sport { 22, 80 } goto hit",
    ]
    go = selection.table("t", NODE, "postrouting", ["counter"], "ip").splitlines()
    assert go[3] == "add rule ip t postrouting ip daddr 198.18.0.9 tcp sport 2222 accept"


@pytest.mark.parametrize("address", ["n2", "127.0.0.1", "198.18.0.1", "::1"])
def test_an_address_that_is_no_other_end(address: str) -> None:
    with pytest.raises(InfraError, match=address):
        Drop(Selection([address])).hold(NODE, 60)  # type: ignore[arg-type]


def test_no_address_at_all() -> None:
    with pytest.raises(InfraError, match="n1: no address is no other end"):
        Drop(Selection([])).hold(NODE, 60)  # type: ignore[arg-type]


def test_shares() -> None:
    assert [share_of(percent) for percent in (100, 12.5, 0.1, 0.001)] == [10_000, 1250, 10, 1]
    assert only(SHARES) == []
    assert only(1250) == ["numgen random mod 10000 >= 1250 accept"]


def test_each_has_a_name_of_its_own() -> None:
    assert Drop(Selection(["198.18.0.2"])).name != Drop(Selection(["198.18.0.2"])).name
    assert len(new_name("delay")) < 29, "iptables takes no longer comment without quotes, nor nft a longer chain"


@pytest.mark.parametrize(("rate", "bits"), [("128kbit", 128e3), ("1.5mbit", 1.5e6), ("1gbit", 1e9)])
def test_rates(rate: str, bits: float) -> None:
    assert bits_per_second(rate) == bits


@pytest.mark.parametrize("rate", ["", "1", "1mb", "0mbit", "-1mbit", "1mbit; reboot", "1e3mbit"])
def test_rates_that_are_none(rate: str) -> None:
    with pytest.raises(ValueError, match="is right, such as '1mbit'"):
        bits_per_second(rate)


def queued(number: int, mark: int | None) -> bytes:
    """A packet as the kernel reports it: its header, an interface, and its mark where it has one."""
    body = delayer.attribute(1, struct.pack("!IHB", number, 0x0800, 1)) + delayer.attribute(5, struct.pack("!I", 2))
    return delayer.message(delayer._PACKET, 7, body + (delayer.attribute(3, struct.pack("!I", mark)) if mark else b""))


def test_packets_are_read_from_the_kernels_messages() -> None:
    assert delayer.packets(queued(41, 0x30000) + queued(42, None)) == [(41, 0x30000), (42, 0)]
    assert delayer.packets(b"") == []
    assert delayer.packets(b"\0" * 20) == []


def test_a_verdict_repeats_the_hook_with_another_mark() -> None:
    sent = delayer.verdict(7, 41, 0x20000)
    length, kind = struct.unpack_from("=IH", sent)
    assert (length, kind) == (len(sent), delayer._VERDICT)
    assert struct.unpack_from("!H", sent, 18) == (7,)
    assert struct.unpack_from("!II", sent, 24) == (4, 41)
    assert struct.unpack_from("!I", sent, 36) == (0x20000,)


class Sink:
    """Takes what a delayer sends."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send(self, data: bytes) -> None:
        self.sent.append(data)


def test_packets_go_when_they_are_due_and_lose_one_bit() -> None:
    made = delayer.Delayer.__new__(delayer.Delayer)
    made.queue, made.mark, made.delay_s, made.jitter_s, made.waiting = 7, 0x10000, 1.0, 0.0, []
    sink = made.socket = Sink()  # type: ignore[assignment]
    made._take(queued(1, 0x30000), now=10.0)
    made._take(queued(2, 0x10000), now=10.5)
    made._release(10.9)
    assert sink.sent == []
    made._release(11.0)
    assert sink.sent == [delayer.verdict(7, 1, 0x20000)]
    made._release(float("inf"))
    assert sink.sent[1:] == [delayer.verdict(7, 2, 0)]


def test_a_jitter_stays_in_its_bounds() -> None:
    made = delayer.Delayer.__new__(delayer.Delayer)
    made.queue, made.mark, made.delay_s, made.jitter_s, made.waiting = 7, 1, 1.0, 0.5, []
    for number in range(200):
        made._take(queued(number, 1), now=0.0)
    due = [when for when, _, _ in made.waiting]
    assert 0.5 <= min(due) < 0.6
    assert 1.4 < max(due) <= 1.5


def test_arrivals_tell_copies_from_what_came_late() -> None:
    found = datagrams.Arrivals()
    for second, number in enumerate([0, 2, 1, 1, 4, 3, 4]):
        found.take(number, 100, 10.0 + second)
    assert found.told() == "7 5 2 700 6.000000"
    made = Burst(6, 7, 5, 2, 700, 6.0)
    assert (made.lost, made.copies, made.bits_per_second) == (1, 2, 800.0)
    assert Burst(6, 1, 1, 0, 100, 0.0).bits_per_second == 0.0
