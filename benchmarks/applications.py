# SPDX-License-Identifier: Apache-2.0
"""The cost of a member of a consumer group: its start, with an archive of class data and without, and its deliveries,
beside our own client's pulls of the same messages. One local node with a broker; needs root.

    python -m benchmarks.applications [MESSAGES]

Prints the processor time (s, median of `ROUNDS` starts) of a member until it has got the first message, and the ratio
without / with; then the deliveries per second of one member and the messages per second of our own client, and their
ratio.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

from infra.machines.api import ClusterSpec, Node
from infra.machines.backends.local import LocalBackend
from infra.systems.api import ServerSettings
from infra.systems.rocketmq.applications.java import JavaProgram
from infra.systems.rocketmq.applications.process import Application
from infra.systems.rocketmq.protocol.admin import BrokerAdmin
from infra.systems.rocketmq.protocol.client import Broker
from infra.systems.rocketmq.topologies.master_slave import MasterSlaveTopology

ROUNDS: Final = 5
TOPIC: Final = "benchmark"
DEADLINE_S: Final = 20.0
SENDERS: Final = 8
TICKS: Final = 100
"""Per second of processor time in /proc/PID/stat."""


def processor_s(node: Node, pid: int) -> float:
    """The processor time of a process so far, of all its threads."""
    fields = node.run(["cat", f"/proc/{pid}/stat"]).text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def first_messages(node: Node, argv: Sequence[str], consume: dict[str, Any]) -> tuple[Application, float, int]:
    """Starts a member; returns it with its processor time until its first message (s), and how many it has got."""
    application = Application(node, "application-benchmark", argv)
    await application.start(DEADLINE_S)
    await application.tell(consume)
    got = 0
    while not got:
        got = await deliveries(application)
    return application, processor_s(node, application.pid), got


async def deliveries(application: Application) -> int:
    """The number of messages that a member has got since the last call; waits for the next event."""
    return sum(event.kind == "delivered" for event in await application.take(DEADLINE_S))


async def fill(host: str, port: int, messages: int) -> None:
    """Sends so many messages of 100 bytes to one queue."""
    left = iter(range(messages))

    async def send() -> None:
        broker = Broker(host, port, deadline_s=DEADLINE_S, raft_log=False)
        for number in left:
            sent = await broker.send(TOPIC, 0, str(number).encode().ljust(100))
            if sent.outcome.type != "ok":
                sys.exit(f"message {number}: {sent.outcome}")

    await asyncio.gather(*(send() for _ in range(SENDERS)))


async def pulled(broker: Broker, messages: int) -> float:
    """Messages per second of our own client, from offset 0 to the end."""
    begun, offset = time.monotonic(), 0
    while offset < messages:
        offset = (await broker.pull(TOPIC, 0, offset, group="own", max_messages=32)).next or 0
    return messages / (time.monotonic() - begun)


async def delivered(node: Node, argv: Sequence[str], consume: dict[str, Any], messages: int) -> float:
    """Deliveries per second of one member, from the first to the last message."""
    application, _, got = await first_messages(node, argv, consume)
    begun, left = time.monotonic(), messages - got
    while got < messages:
        got += await deliveries(application)
    rate = left / (time.monotonic() - begun)
    await application.kill()
    return rate


async def measure(node: Node, topology: MasterSlaveTopology, messages: int) -> None:
    """Prints all figures."""
    servers = {server.kind: server for server in topology.servers(node)}
    host, port = servers["broker"].endpoint
    program = JavaProgram(servers["broker"].launch.version or "", "remoting")
    program.prepare()
    plain = program.argv
    await asyncio.to_thread(program.install, node)
    archived = program.argv
    nameserver = "{}:{}".format(*servers["namesrv"].endpoint)
    part: dict[str, Any] = {"do": "consume", "name": "consumer", "library": "remoting", "topics": [TOPIC]}
    part |= {"nameservers": nameserver, "orderly": False}
    broker = Broker(host, port, deadline_s=DEADLINE_S, raft_log=False)
    async with BrokerAdmin(host, port, deadline_s=DEADLINE_S) as admin:
        await admin.create_topic(TOPIC, 1)
        groups = ["own", "rate", *(f"start-{number}" for number in range(2 * ROUNDS))]
        for group in groups:
            await admin.create_group(group)
        await fill(host, port, messages)
        starts: dict[str, list[float]] = {"without": [], "with": []}
        for number in range(ROUNDS):
            for i, (kind, argv) in enumerate((("without", plain), ("with", archived))):
                group = f"start-{2 * number + i}"
                member, spent, _ = await first_messages(node, argv, {**part, "group": group, "instance": group})
                await member.kill()
                starts[kind].append(spent)
        medians = {kind: statistics.median(of) for kind, of in starts.items()}
        for kind, median in medians.items():
            print(f"start {kind:7} an archive: {median:.2f} s of processor time until the first message")
        print(f"without / with: {medians['without'] / medians['with']:.2f}")
        own = await pulled(broker, messages)
        member_rate = await delivered(node, archived, {**part, "group": "rate", "instance": "rate"}, messages)
        print(f"{member_rate:.0f} deliveries/s to a member, {own:.0f} messages/s to our own client")
        print(f"own / member: {own / member_rate:.2f}")


def main() -> None:
    """Provisions the node, and removes it."""
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    topology = MasterSlaveTopology(ServerSettings(profile="default"))
    cluster = LocalBackend().provision(ClusterSpec(f"benchmark-{time.time_ns():x}", 1, topology.shares()))
    try:
        topology.attach(cluster)
        topology.start_all(120)
        asyncio.run(measure(cluster.nodes[0], topology, messages))
    finally:
        cluster.destroy()


if __name__ == "__main__":
    main()
