# SPDX-License-Identifier: Apache-2.0
"""Packet faults on links in memory: what counts as seen and as healed."""

from __future__ import annotations

import socket
from contextlib import suppress
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from harness.api import Evidence, Target
from harness.cluster_view import ClusterView
from infra.machines.api import InfraError
from infra.machines.primitives.datagrams import Burst
from infra.machines.primitives.shaping import Occupied
from infra.machines.scripts import datagrams
from infra.options import OptionError, parse
from nemesis import on_links
from nemesis.links import LinkOptions
from nemesis.on_links import OnLinks, PacketNemesis
from nemesis.packets import (
    Bandwidth,
    BandwidthOptions,
    DelayOptions,
    DuplicateOptions,
    LossOptions,
    OneWayCut,
    PacketDelay,
    PacketDuplicate,
    PacketLoss,
    PacketReorder,
    ReorderOptions,
)

VIEW = ClusterView.assumed(["n1", "n2", "n3"], "n1")
BACK = "datagrams arrived, the other way 5 of 5"


def arrived(different: int, *, sent: int = 200, copies: int = 0, behind: int = 0, mbit: float = 0.0) -> Burst:
    """A burst of which so many came; `mbit`: how fast (on the wire, with 1400 bytes of payload each)."""
    size = 1400 * (different + copies)
    seconds = 8 * (size - 1400) * 1442 / 1400 / (mbit * 1e6) if mbit else 0.0
    return Burst(sent, different + copies, different, behind, size, seconds)


@pytest.mark.parametrize(
    ("fault", "before", "now", "expected"),
    [
        (OneWayCut(), None, (arrived(0, sent=5), arrived(5, sent=5)), (True, f"0 of 5 {BACK}")),
        (OneWayCut(), None, (arrived(1, sent=5), arrived(5, sent=5)), (False, f"1 of 5 {BACK}")),
        (PacketDelay(), 0.25, 50.5, (True, "round trip 50.50 ms, 0.25 ms before")),
        (PacketDelay(), 30.0, 50.5, (False, "round trip 50.50 ms, 30.00 ms before")),
        (PacketDelay(), 0.25, None, (False, "no echo came back")),
        (PacketLoss(), None, arrived(199), (True, "199 of 200 datagrams arrived")),
        (PacketLoss(), None, arrived(200), (False, "200 of 200 datagrams arrived")),
        (PacketDuplicate(), None, arrived(200, copies=3), (True, "3 copies of 200 datagrams arrived")),
        (PacketDuplicate(), None, arrived(200), (False, "0 copies of 200 datagrams arrived")),
        (PacketReorder(), None, arrived(200, behind=1), (True, "1 of 200 datagrams arrived behind a later one")),
        (PacketReorder(), None, arrived(200), (False, "0 of 200 datagrams arrived behind a later one")),
        (Bandwidth(), arrived(43, mbit=700), arrived(43, mbit=1.1), (True, "1.10 Mbit/s, 700 Mbit/s before")),
        (Bandwidth(), arrived(43, mbit=700), arrived(43, mbit=1.3), (False, "1.30 Mbit/s, 700 Mbit/s before")),
        (Bandwidth(), arrived(43, mbit=1.2), arrived(43, mbit=1.0), (False, "1.00 Mbit/s, 1 Mbit/s before")),
        (Bandwidth(), arrived(43, mbit=700), arrived(1), (False, "0.00 Mbit/s, 700 Mbit/s before")),
    ],
)
def test_what_is_an_effect(fault: PacketNemesis, before: Any, now: Any, expected: tuple[bool, str]) -> None:
    assert fault.judge(before, now) == Evidence(*expected)


@pytest.mark.parametrize(
    ("owner", "given", "said"),
    [
        (
            DelayOptions,
            {"by": "10ms", "jitter": "20ms"},
            "jitter is 0.02 s; at most 0.01 s, as long as it waits, is right",
        ),
        (DelayOptions, {"by": "4s"}, "0.001s to 3s is right"),
        (LossOptions, {"percent": 91}, "0.1 to 90 is right"),
        (DuplicateOptions, {"percent": 0}, "0.1 to 100 is right"),
        (ReorderOptions, {"percent": 100}, "0.1 to 99 is right"),
        (BandwidthOptions, {"rate": "1mb"}, "a number with kbit, mbit or gbit is right"),
        (BandwidthOptions, {"rate": "100kbit"}, "at least 128kbit is right"),
        (BandwidthOptions, {"rate": "1mbit", "port": "x"}, "port is 'x'"),
    ],
)
def test_options_that_cannot_be_meant(owner: type, given: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as problem:
        parse(owner, given, "x")
    assert said in str(problem.value)


class Mechanism:
    """The mechanism of a fault on a node: it counts if `counts`, and stays when it is `stuck`."""

    name = "harness_test_1"
    needs = "a miracle"

    def __init__(self, counts: bool = True, stuck: bool = False, refused: InfraError | None = None) -> None:
        self.counts, self.stuck, self.refused = counts, stuck, refused
        self.held = False
        self.asked = 0

    def hold(self, node: Any, ttl_s: float) -> Any:
        if self.refused:
            raise self.refused
        self.held = True
        return SimpleNamespace(heal=self.heal)

    def heal(self) -> None:
        self.held = self.stuck

    def counted(self, node: Any) -> int:
        self.asked += self.counts
        return self.asked

    def left(self, node: Any) -> list[str]:
        return ["the table harness_test_1"] if self.held else []


class Losing(PacketLoss):
    """Loses on links while its mechanism is held; `whole` are links on which nothing is lost."""

    def __init__(self, mechanism: Mechanism, whole: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.mechanism, self.whole = mechanism, whole

    def made(self, selection: Any) -> Any:
        self.selection = selection
        return self.mechanism

    def probe(self, way: Any) -> Burst:
        return arrived(170 if self.mechanism.held and way.source.node.name not in self.whole else 200)


def nodes() -> Any:
    machines = {f"n{i}": SimpleNamespace(name=f"n{i}", address=f"198.18.0.{i}") for i in (1, 2, 3)}
    return SimpleNamespace(node=machines.__getitem__, nodes=list(machines.values()))


def injection(fault: PacketNemesis) -> OnLinks:
    made = fault.aim(VIEW, Target(["n1"]), Random(1))["n1"]
    assert isinstance(made, OnLinks)
    made.patience_s = 0.0
    return made


def test_every_link_must_show_it() -> None:
    fault = Losing(Mechanism())
    struck = injection(fault)
    assert struck.seen(nodes()) == Evidence(False, "nothing was injected")
    lease = struck.inject(nodes(), 60)
    assert list(fault.selection.addresses) == ["198.18.0.2", "198.18.0.3"]
    what = "n2: 170 of 200 datagrams arrived; n3: 170 of 200 datagrams arrived; 1 packets counted"
    assert struck.seen(nodes()) == Evidence(True, what)
    assert lease is not None
    lease.heal()
    gone = "harness_test_1 is gone; n2: 200 of 200 datagrams arrived; n3: 200 of 200 datagrams arrived"
    assert struck.healed(nodes()) == Evidence(True, gone)


def test_one_whole_link_is_no_effect() -> None:
    struck = injection(Losing(Mechanism(), whole=("n3",)))
    struck.inject(nodes(), 60)
    assert struck.seen(nodes()).seen is False


def test_losses_that_the_rule_did_not_count_are_not_its_own() -> None:
    struck = injection(Losing(Mechanism(counts=False)))
    struck.inject(nodes(), 60)
    evidence = struck.seen(nodes())
    assert not evidence.seen
    assert evidence.what.endswith("; 0 packets counted")


def test_what_stays_is_not_healed() -> None:
    struck = injection(Losing(Mechanism(stuck=True)))
    lease = struck.inject(nodes(), 60)
    assert lease is not None
    lease.heal()
    assert struck.healed(nodes()) == Evidence(False, "still there: the table harness_test_1")


class Delaying(PacketDelay):
    """Delays while its mechanism is held; nothing comes back over the links that are `cut`."""

    def __init__(self, mechanism: Mechanism, *cut: str) -> None:
        super().__init__()
        self.mechanism, self.cut = mechanism, cut

    def made(self, selection: Any) -> Any:
        return self.mechanism

    def probe(self, way: Any) -> float | None:
        return None if way.source.node.name in self.cut else 50.5 if self.mechanism.held else 0.5

    baseline = probe


def test_a_link_that_was_cut_before_shows_no_delay_and_no_lack_of_it() -> None:
    struck = injection(Delaying(Mechanism(), "n2"))
    struck.inject(nodes(), 60)
    what = "n3: round trip 50.50 ms, 0.50 ms before; 1 packets counted"
    assert struck.seen(nodes()) == Evidence(True, what)


def test_a_link_that_is_cut_meanwhile_shows_nothing() -> None:
    fault = Delaying(Mechanism())
    struck = injection(fault)
    struck.inject(nodes(), 60)
    fault.cut = ("n2",)
    assert not struck.seen(nodes()).seen


def test_where_all_links_were_cut_nothing_is_seen() -> None:
    struck = injection(Delaying(Mechanism(), "n2", "n3"))
    lease = struck.inject(nodes(), 60)
    assert struck.seen(nodes()) == Evidence(False, "all its links were cut before; 1 packets counted")
    assert lease is not None
    lease.heal()
    assert struck.healed(nodes()).seen


def test_a_probe_ends_after_two_echoes_that_did_not_come(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as deaf:
        deaf.bind(("127.0.0.1", 0))
        datagrams.ping("127.0.0.1", deaf.getsockname()[1], 0, 9, 0.05)
        deaf.setblocking(False)
        came = 0
        with suppress(BlockingIOError):
            while deaf.recv(64):
                came += 1
    assert came == 2
    assert capsys.readouterr().out.strip() == ""


def test_a_place_that_is_taken_is_no_failure() -> None:
    struck = injection(Losing(Mechanism(refused=Occupied("n1: eth0 has a queue already"))))
    assert struck.inject(nodes(), 60) is None
    assert struck.seen(nodes()) == Evidence(False, "n1: eth0 has a queue already, so nothing was injected")


def test_a_mechanism_that_is_missing_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_links, "round_trip_ms", lambda *_: 0.1)
    assert Losing(Mechanism()).available(nodes()) is None
    broken = Losing(Mechanism(refused=InfraError("n1: injecting with 'nft' failed: no such module")))
    assert broken.available(nodes()) == "n1: injecting with 'nft' failed: no such module; it needs a miracle"
    assert Losing(Mechanism(stuck=True)).available(nodes()) == "n1: a trial left the table harness_test_1 behind"


def test_clients_whose_address_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_links, "control_address", lambda node: "")
    struck = injection(OneWayCut(LinkOptions(peers=("clients",))))
    with pytest.raises(InfraError, match="n1: the node does not report the address of the control program"):
        struck.inject(nodes(), 60)
