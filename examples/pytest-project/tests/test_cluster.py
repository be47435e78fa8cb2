# SPDX-License-Identifier: Apache-2.0
"""A test on a cluster of RocketMQ: name servers answer while brokers are killed. Put your own client here."""

from __future__ import annotations

import socket
import time

import pytest

from rocketmq_harness import Recorder, RunningCluster


@pytest.mark.cluster
@pytest.mark.linearizable("register")
@pytest.mark.nemesis("kill-random-processes", target="broker", every_s=10, for_s=5)
def test_name_servers_answer(rocketmq_cluster: RunningCluster, history: Recorder) -> None:
    """A register with one value: each connection reads "answers"."""
    with history.op("write", value="answers") as op:
        op.ok()
    end = time.monotonic() + 20
    while time.monotonic() < end:
        for address in rocketmq_cluster.name_servers.split(";"):
            host, port = address.rsplit(":", 1)
            with history.op("read") as op, socket.create_connection((host, int(port)), timeout=5):
                op.ok("answers")
        time.sleep(0.2)
