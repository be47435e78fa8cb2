# SPDX-License-Identifier: Apache-2.0
"""Links that fail in part: one way only, late, with losses, copies, a changed order, or little bandwidth.

Each fault acts on chosen links (`nemesis.links`). The receiver drops or delays packets; the sender
copies them, or queues them. Numbered datagrams and round trips over each link show the effect.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from harness.api import Evidence
from infra.machines.primitives.datagrams import Burst, burst, round_trip_ms
from infra.machines.primitives.packets import Delay, Drop, Duplicate, PacketFault, Selection, share_of
from infra.machines.primitives.shaping import Shape, bits_per_second
from infra.options import Seconds, option
from infra.systems.api import REPLICATION, Deployment
from nemesis.links import ClientOptions, LinkOptions, SenderLinkOptions, ports
from nemesis.on_links import PacketNemesis, Way
from results.strikes import CLIENTS, EffectKind

_SERVICE_S = 1.0
"""A service that does not take a connection within this time does not answer."""
_FRAME = 42
"""Bytes of a datagram's Ethernet, IPv4 and UDP headers."""
_PAYLOAD = 1400


class OneWayCut(PacketNemesis):
    """Packets of one direction are dropped; those of the other arrive."""

    name = "one-way-cut"
    summary = "cuts links in one direction: a node is not heard, or does not hear"
    impairs: ClassVar[EffectKind] = "cut-off"

    def made(self, selection: Selection) -> PacketFault:
        return Drop(selection)

    def probe(self, way: Way) -> tuple[Burst, Burst]:
        """Measures both directions: this way, and back."""
        return (
            burst(way.source, way.target, 5, gap_s=0.01, port=way.port),
            burst(way.target, way.source, 5, gap_s=0.01, port=way.port),
        )

    def judge(self, before: Any, now: tuple[Burst, Burst]) -> Evidence:
        there, back = now
        what = f"{there.different} of {there.sent} datagrams arrived, the other way {back.different} of {back.sent}"
        return Evidence(there.different == 0, what)


class CutClients(OneWayCut):
    """Clients do not reach the target nodes; the nodes reach each other.

    Packets from the control program's machine are dropped, except its SSH connection. So the run's own observation of
    the servers on these nodes ends as well: they are `silent` in it.
    """

    name = "cut-clients"
    summary = "cuts nodes off from the clients, and not from one another"
    Options: ClassVar[type] = ClientOptions

    def also(self, deployment: Deployment, node: str) -> list[Evidence]:
        """Probes that no service there takes a connection from here, and that SSH works."""
        if self.options.port.isdigit():
            numbers: Sequence[int] = [int(self.options.port)]
        else:
            numbers = ports(deployment, REPLICATION if self.options.port == REPLICATION else CLIENTS, [node])
        machine = deployment.node(node)
        open_ones = [str(number) for number in numbers if _answers(machine.address, number)]
        listed = ", ".join(map(str, numbers))
        machine.run(["true"])
        found = f"port {', '.join(open_ones)} answers" if open_ones else f"no answer from port {listed} within 1 s"
        return [Evidence(not open_ones, f"{found}, while SSH works")]


def _answers(address: str, port: int) -> bool:
    """True if the address answers at all: a refusal is an answer."""
    try:
        socket.create_connection((address, port), _SERVICE_S).close()
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


@dataclass(frozen=True)
class DelayOptions(LinkOptions):
    """The options of `packet-delay`."""

    by: Seconds = option(Seconds(0.05), "How long each packet waits on average.", low=0.001, high=3)
    jitter: Seconds = option(Seconds(0.0), "It waits so much longer or shorter, at random; at most as much.", high=3)

    def __post_init__(self) -> None:
        """Raises ValueError."""
        super().__post_init__()
        if self.jitter > self.by:
            raise ValueError(f"jitter is {self.jitter:g} s; at most {self.by:g} s, as long as it waits, is right")


class PacketDelay(PacketNemesis):
    """Packets arrive late; with a jitter they overtake one another."""

    name = "packet-delay"
    summary = "delays packets, by a fixed time or with a jitter"
    Options: ClassVar[type] = DelayOptions

    def made(self, selection: Selection) -> PacketFault:
        return Delay(selection, delay_s=self.options.by, jitter_s=self.options.jitter)

    def probe(self, way: Way) -> float | None:
        """The round trip in ms."""
        longest = self.options.by + self.options.jitter
        count = max(3, min(9, int(3 / longest)))
        return round_trip_ms(way.source, way.target, count, port=way.port, timeout_s=2 + longest)

    baseline = probe

    def usable(self, before: float | None) -> bool:
        return before is not None

    def judge(self, before: float | None, now: float | None) -> Evidence:
        if before is None or now is None:
            return Evidence(False, "no echo came back")
        late = now - before >= 500 * self.options.by
        return Evidence(late, f"round trip {now:.2f} ms, {before:.2f} ms before")


def _percent(default: float, what: str, high: float) -> Any:
    return option(default, f"Share of the packets that {what}, each chosen at random.", low=0.1, high=high)


def _count(percent: float) -> int:
    """The number of datagrams of which some 20 are in the share."""
    return round(min(4000, max(200, 2000 / percent)))


@dataclass(frozen=True)
class LossOptions(LinkOptions):
    """The options of `packet-loss`."""

    percent: float = _percent(10.0, "are dropped", 90)


class PacketLoss(PacketNemesis):
    """Single packets are dropped."""

    name = "packet-loss"
    summary = "drops a share of the packets"
    Options: ClassVar[type] = LossOptions

    def made(self, selection: Selection) -> PacketFault:
        return Drop(selection, share=share_of(self.options.percent))

    def probe(self, way: Way) -> Burst:
        return burst(way.source, way.target, _count(self.options.percent), port=way.port)

    def judge(self, before: Any, now: Burst) -> Evidence:
        return Evidence(now.lost > 0, f"{now.different} of {now.sent} datagrams arrived")


@dataclass(frozen=True)
class DuplicateOptions(SenderLinkOptions):
    """The options of `packet-duplicate`."""

    percent: float = _percent(10.0, "are sent twice", 100)


class PacketDuplicate(PacketNemesis):
    """Single packets are sent twice."""

    name = "packet-duplicate"
    summary = "sends a share of the packets twice"
    Options: ClassVar[type] = DuplicateOptions
    on_arrival: ClassVar[bool] = False

    def made(self, selection: Selection) -> PacketFault:
        return Duplicate(selection, share=share_of(self.options.percent))

    def probe(self, way: Way) -> Burst:
        return burst(way.source, way.target, _count(self.options.percent), port=way.port)

    def judge(self, before: Any, now: Burst) -> Evidence:
        return Evidence(now.copies > 0, f"{now.copies} copies of {now.different} datagrams arrived")


@dataclass(frozen=True)
class ReorderOptions(LinkOptions):
    """The options of `packet-reorder`."""

    percent: float = _percent(10.0, "are overtaken by later ones", 99)
    by: Seconds = option(Seconds(0.02), "How long those packets are held back.", low=0.002, high=1)


class PacketReorder(PacketNemesis):
    """Single packets are held back for a little, so that later ones overtake them."""

    name = "packet-reorder"
    summary = "holds a share of the packets back, so that later ones overtake them"
    Options: ClassVar[type] = ReorderOptions

    def made(self, selection: Selection) -> PacketFault:
        return Delay(selection, delay_s=self.options.by, share=share_of(self.options.percent))

    def probe(self, way: Way) -> Burst:
        options = self.options
        settle_s = options.by + 0.3
        gap_s = min(0.001, options.by / 4)
        return burst(way.source, way.target, _count(options.percent), gap_s=gap_s, port=way.port, settle_s=settle_s)

    def judge(self, before: Any, now: Burst) -> Evidence:
        return Evidence(now.behind > 0, f"{now.behind} of {now.different} datagrams arrived behind a later one")


@dataclass(frozen=True)
class BandwidthOptions(SenderLinkOptions):
    """The options of `bandwidth`."""

    rate: str = option("1mbit", "What a node may send over all of these links together, as tc(8) writes it.")

    def __post_init__(self) -> None:
        """Raises ValueError."""
        super().__post_init__()
        if bits_per_second(self.rate) < bits_per_second("128kbit"):
            raise ValueError(f"rate is {self.rate!r}; at least 128kbit is right")


class Bandwidth(PacketNemesis):
    """Packets that a node sends over the links wait in a short queue; packets that find the queue full are dropped."""

    name = "bandwidth"
    summary = "limits the rate at which a node sends"
    Options: ClassVar[type] = BandwidthOptions
    on_arrival: ClassVar[bool] = False
    shared: ClassVar[bool] = True

    def made(self, selection: Selection) -> PacketFault:
        return Shape(selection, rate=self.options.rate)

    def baseline(self, way: Way) -> Burst:
        """Measures at full speed."""
        return self._sent(way, 0.0)

    def probe(self, way: Way) -> Burst:
        """Sends at one and a half times the rate, so that the queue is always filled and seldom full."""
        return self._sent(way, (_PAYLOAD + _FRAME) * 8 / (1.5 * bits_per_second(self.options.rate)))

    def judge(self, before: Burst, now: Burst) -> Evidence:
        limit = 1.25 * bits_per_second(self.options.rate)
        seen = 0 < _rate(now) <= limit < _rate(before)
        return Evidence(seen, f"{_rate(now) / 1e6:.2f} Mbit/s, {_rate(before) / 1e6:.0f} Mbit/s before")

    def _sent(self, way: Way, gap_s: float) -> Burst:
        """Sends half a second of the rate."""
        count = round(bits_per_second(self.options.rate) / 2 / 8 / (_PAYLOAD + _FRAME))
        return burst(
            way.source,
            way.target,
            min(10_000, max(30, count)),
            gap_s=gap_s,
            size=_PAYLOAD,
            port=way.port,
            settle_s=0.6,
        )


def _rate(found: Burst) -> float:
    """The rate on the wire, in bits per second."""
    return found.bits_per_second * (_PAYLOAD + _FRAME) / _PAYLOAD
