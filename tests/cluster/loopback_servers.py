# SPDX-License-Identifier: Apache-2.0
"""RocketMQ's servers as processes on loopback, for tests of the protocol: no nodes, no faults."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from infra.systems.remoting.connection import RemotingError
from infra.systems.rocketmq.protocol.admin import AdminError

HOST = "127.0.0.1"
DEADLINE_S = 10.0
PATIENCE_S = 300.0
"""For what servers do in their own time; nothing is asserted about it."""

MAIN = {"namesrv": "namesrv.NamesrvStartup", "broker": "broker.BrokerStartup", "proxy": "proxy.ProxyStartup"}
OPTIONS = [
    *("-Xms32m", "-Xmx192m", "-XX:MaxDirectMemorySize=128m", "-Xss256k", "-XX:+UseSerialGC"),
    *("-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-XX:ActiveProcessorCount=2"),
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
]

BROKER = {
    "brokerClusterName": "harness",
    "brokerName": "a",
    "brokerIP1": HOST,
    "brokerIP2": HOST,
    "autoCreateTopicEnable": "false",
    "autoCreateSubscriptionGroup": "false",
    "slaveReadEnable": "true",
    "mappedFileSizeCommitLog": "33554432",
    "mappedFileSizeConsumeQueue": "40000",
    "mappedFileSizeTimerLog": "10485760",
    "messageIndexEnable": "false",
    "enableCompaction": "false",
    "registerNameServerPeriod": "10000",
    # Each thread that stores a message keeps a buffer of this size outside the heap; thirty of 4 MiB are too many.
    "maxMessageSize": "65536",
    "transactionMetricFlushInterval": "300",
    "transactionTimeOut": "3000",
    "transactionCheckInterval": "3000",
    "transactionOpBatchInterval": "300",
    "waitTimeMillsInSendQueue": "10000",
    "osPageCacheBusyTimeOutMills": "10000",
    "recallMessageEnable": "true",
    "diskMaxUsedSpaceRatio": "95",
}


def free_ports() -> int:
    """A port with two below and one above it free as well: a broker takes four in a row."""
    for port in range(23000, 60000, 7):
        with contextlib.ExitStack() as stack:
            try:
                for offset in (-2, 0, 1):
                    stack.enter_context(socket.create_server((HOST, port + offset)))
            except OSError:
                continue
            if port not in _TAKEN:
                _TAKEN.add(port)
                return port
    raise AssertionError("no free ports")


_TAKEN: set[int] = set()


def start(kind: str, folder: Path, jars: Path, settings: Mapping[str, str | int]) -> subprocess.Popen[bytes]:
    """A server with its files below `folder`. Who starts it ends it."""
    folder.mkdir()
    file = folder / "settings"
    if kind == "proxy":
        file.write_text(json.dumps(settings))
        arguments = ["-pm", "cluster", "-pc", str(file)]
    else:
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        arguments = ["-c", str(file)]
    homes = [f"-Duser.home={folder}", f"-Drocketmq.home.dir={folder}"]
    logs = f"-Drmq.logback.configurationFile=rmq.{kind}.logback.xml"
    main = f"org.apache.rocketmq.{MAIN[kind]}"
    with (folder / "out").open("wb") as out:
        return subprocess.Popen(
            ["java", *OPTIONS, *homes, logs, "-cp", f"{jars}/*", main, *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )


async def eventually(ask: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """The first answer of the servers that is true, within `PATIENCE_S`; fails with their last answer if none is."""
    output: Any = None
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    if output := await ask():
                        return output
                except (AdminError, RemotingError) as e:
                    output = e
                await asyncio.sleep(0.2)
    except TimeoutError:
        raise AssertionError(f"not within {PATIENCE_S:.0f} s; the last answer: {output}") from None
