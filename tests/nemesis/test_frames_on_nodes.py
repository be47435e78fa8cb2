# SPDX-License-Identifier: Apache-2.0
"""Frame faults on real nodes: a client on one, a server on the other, and the proxy that neither knows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from bare_servers import BareServer, deployed

from harness.api import Target
from harness.cluster_view import ClusterView
from infra.machines.api import Lease
from infra.machines.primitives import frames
from infra.systems.api import Deployment, ServersRun
from nemesis.frames import AtFrame, FrameFault, FrameOptions

pytestmark = [pytest.mark.cluster, pytest.mark.nodes]

PORT = 9878
VIEW = ClusterView(["n1", "n2"], {"n1": ("broker",), "n2": ("controller",)}, {"n1": "broker"}, {"a": ["n1"]})

_FRAMES = """
import os, socket, struct, sys

def frame(code, number, flag):
    return struct.pack("!IIhBhiiii", 25, 1 << 24 | 21, code, 0, 1, number, flag, 0, 0)

def one(sock):
    data = b""
    while len(data) < 29:
        part = sock.recv(29 - len(data))
        if not part:
            raise ConnectionError("closed")
        data += part
    code, _, _, number, flag = struct.unpack_from("!hBhii", data, 8)
    return code, number
"""
SERVER = (
    _FRAMES
    + f"""
listener = socket.create_server(("0.0.0.0", {PORT}))
while True:
    sock, _ = listener.accept()
    if os.fork():
        sock.close()
        continue
    while True:
        code, number = one(sock)
        sock.sendall(frame(code, number, 1))
"""
)
BROKER = "import time; time.sleep(1000)"
# Sends requests one after the other, a new connection where one breaks; prints what became of each.
CLIENT = (
    _FRAMES
    + f"""
import time
address, count, code = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sock = None
for number in range(1, count + 1):
    try:
        if sock is None:
            sock = socket.create_connection((address, {PORT}), 2)
        sock.settimeout(1)
        began = time.monotonic()
        sock.sendall(frame(code, number, 0))
        while True:
            got = one(sock)[1]
            if got == number:
                break
        print(number, "late" if time.monotonic() - began > 0.3 else "ok")
    except TimeoutError:
        print(number, "silent")
    except OSError:
        print(number, "closed")
        sock = None
"""
)


@pytest.fixture(scope="module")
def deployment() -> Iterator[Deployment]:
    """A broker on n1, a controller on n2; the proxy is in the way."""
    with deployed({"broker": ["python3", "-c", BROKER]}, nodes=2) as made:
        topology: Any = made.topology
        first, second = made.nodes
        topology.all = [
            BareServer(first, "broker", ["python3", "-c", BROKER]),
            BareServer(second, "controller", ["python3", "-c", SERVER], group=None, ports={"controller": PORT}),
        ]
        fault = FrameFault(FrameOptions(code=1))
        assert fault.available(made) is None
        fault.prepare(made)
        for server in made.servers():
            server.start()
        yield made


def asked(deployment: Deployment, count: int, code: int = 1013) -> list[str]:
    """The outcome of each of some requests of n1 to n2."""
    first, second = deployment.nodes
    argv = ["python3", "-c", CLIENT, second.address, str(count), str(code)]
    return [line.split()[1] for line in first.run(argv).text.splitlines()]


def struck(deployment: Deployment, **options: Any) -> tuple[AtFrame, Lease]:
    given = replace(FrameOptions(code=1013, wait=0.3), **options)  # type: ignore[arg-type]
    (injection,) = FrameFault(given).aim(VIEW, Target(["n1"]), Random(json.dumps(options))).values()
    lease = injection.inject(deployment, 60)
    assert lease is not None
    assert isinstance(injection, AtFrame)
    return injection, lease


def test_without_a_strike_all_passes_and_is_counted(deployment: Deployment) -> None:
    before = {(c.kind, c.code): c.number for c in frames.report(deployment.node("n1")).counts}
    assert asked(deployment, 5, 904) == ["ok"] * 5
    after = {(c.kind, c.code): c.number for c in frames.report(deployment.node("n1")).counts}
    for kind in ("request", "response"):
        assert after[kind, 904] - before.get((kind, 904), 0) == 5


@pytest.mark.parametrize(
    ("options", "answers"),
    [
        ({"act": "drop", "which": 2}, ["ok", "silent", "ok", "ok"]),
        ({"act": "drop", "frame": "response"}, ["silent", "ok", "ok", "ok"]),
        ({"act": "close", "which": 3}, ["ok", "ok", "closed", "ok"]),
        ({"act": "delay", "by": 0.5}, ["late", "ok", "ok", "ok"]),
        ({"act": "repeat", "which": 0}, ["ok", "ok", "ok", "ok"]),
    ],
    ids=lambda value: value["act"] if isinstance(value, dict) else "",
)
def test_the_chosen_frame_is_hit_and_no_other(deployment: Deployment, options: Any, answers: list[str]) -> None:
    injection, lease = struck(deployment, **options)
    assert not injection.seen(deployment).seen
    assert asked(deployment, 4) == answers
    assert injection.seen(deployment).seen
    lease.heal()
    healed = injection.healed(deployment)
    assert healed.seen
    assert f"{4 if options['act'] == 'repeat' else 1} times; requests meanwhile: 1013 x 4" in healed.what
    assert asked(deployment, 2) == ["ok", "ok"]


def test_other_codes_pass(deployment: Deployment) -> None:
    injection, lease = struck(deployment, which=0)
    assert asked(deployment, 3, 904) == ["ok"] * 3
    assert not injection.seen(deployment).seen
    lease.heal()


@pytest.mark.parametrize("passes", [True, False])
def test_a_server_dies_with_the_frame_and_returns_at_the_heal(deployment: Deployment, passes: bool) -> None:
    (broker,) = deployment.servers("n1")
    injection, lease = struck(deployment, act="kill", passes=passes)
    before = broker.process()
    assert before is not None
    assert asked(deployment, 1) == ["ok" if passes else "silent"]
    assert injection.seen(deployment).seen
    assert broker.process() is None
    lease.heal()
    healed = injection.healed(deployment)
    assert healed.seen
    assert healed.what.endswith("the broker has a new process")
    assert broker.process() not in (None, before)


def test_the_lease_alone_lets_go(deployment: Deployment) -> None:
    (injection,) = FrameFault(FrameOptions(code=1013, which=0)).aim(VIEW, Target(["n1"]), Random(9)).values()
    assert injection.inject(deployment, 1) is not None
    assert asked(deployment, 3)[-1] == "ok"


def test_a_second_fault_adds_its_links_and_the_servers_must_stand_still(deployment: Deployment) -> None:
    FrameFault(FrameOptions(code=2)).prepare(deployment)  # the same link: nothing to do
    with pytest.raises(ServersRun, match="do not pass the proxy"):
        FrameFault(FrameOptions(code=2, port=9999)).prepare(deployment)


def test_a_kind_that_nobody_has_is_not_available(deployment: Deployment) -> None:
    assert FrameFault(FrameOptions(code=2, link="namesrv")).available(deployment) == "no server here is a namesrv"
