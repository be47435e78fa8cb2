# SPDX-License-Identifier: Apache-2.0
"""The JVM options of RocketMQ's servers, each with its reason. Memory was measured on 5.5.0: see docs/topologies.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from infra.systems.rocketmq.servers import BROKER, CONTROLLER, NAMESRV, PROXY

COMMON: Final[Mapping[str, str]] = {
    "-Xss256k": "a broker has 170 threads",
    "-XX:ActiveProcessorCount=2": "thread pools grow with the processors; a node is to be alike on every machine",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED": "addresses of direct buffers (TransientStorePool, warm-up)",
    "--add-opens=java.base/java.util.concurrent.atomic=ALL-UNNAMED": "JRaft's snapshots look into AtomicLong",
    "--add-opens=java.base/java.lang=ALL-UNNAMED": "the same",
    "--add-opens=java.base/java.util=ALL-UNNAMED": "the same",
    "-Duser.timezone=UTC": "lines of all logs in the time of the record",
    "-Dtls.server.mode=disabled": (
        "no client here uses TLS; otherwise a server makes an RSA key for each port and loads 830 classes of "
        "BouncyCastle at its start: 1 to 6 s of processor time, as the search for primes goes"
    ),
}

HEAP: Final[Mapping[str, Mapping[str, str]]] = {
    NAMESRV: {"-Xms16m": "small at first", "-Xmx96m": "112-126 MB resident"},
    CONTROLLER: {
        "-Xms48m": "small at first",
        "-Xmx128m": "135-148 MB resident, 194 MB with JRaft",
        "-XX:MaxDirectMemorySize=64m": "Netty's buffers",
    },
    BROKER: {
        "-Xms32m": "small at first",
        "-Xmx192m": "280-330 MB resident; 128 MB carried 20,000 sends of 1 KB",
        "-XX:MaxDirectMemorySize=128m": "the timer wheel alone takes more than 64 MB: the broker dies of it at start",
    },
    PROXY: {"-Xms64m": "small at first", "-Xmx192m": "167 MB resident"},
}

WITH_LOCAL_PROXY: Final[Mapping[str, str]] = {
    "-Xms32m": "small at first",
    "-Xmx320m": "a broker's heap, and two thirds of a proxy's",
    "-XX:MaxDirectMemorySize=192m": "a broker's, and half as much for gRPC's buffers",
}
"""A broker with a proxy inside."""

WITH_DLEDGER: Final[Mapping[str, str]] = {
    "-Xms32m": "small at first",
    "-Xmx384m": (
        "each thread that appends keeps a buffer of 4 MiB in the heap (DLedgerMmapFileStore.localEntryBuffer): 14 of a "
        "leader without retries, and 18 more that deliver these (ScheduleMessageService)"
    ),
    "-XX:MaxDirectMemorySize=128m": "as any broker's",
}
"""A broker whose CommitLog is a DLedger log."""

RESIDENT_MB: Final[Mapping[str, int]] = {NAMESRV: 130, CONTROLLER: 200, BROKER: 340, PROXY: 200}
"""The machine's memory that a server takes, in MB: checked before any server is started."""

FILES_MB: Final[Mapping[str, int]] = {NAMESRV: 1, CONTROLLER: 150, BROKER: 200, PROXY: 1}
"""The MB that a server writes in a run of minutes; JRaft's log alone is 146 MB from the start."""
