# SPDX-License-Identifier: Apache-2.0
"""Tests of a store and of a broker whose operations are recorded, and judged at the end of each test."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from store import Broker, Store

from rocketmq_harness import Recorder, linearizability


@pytest.mark.linearizable(linearizability.Register(0))
def test_many_threads_see_one_register(history: Recorder) -> None:
    store = Store()

    def client(number: int) -> None:
        for value in range(100 * number, 100 * number + 50):
            with history.op("write", value=value) as op:
                store.write(value)
                op.ok()
            with history.op("read") as op:
                op.ok(store.read())

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(client, range(1, 5)))


@pytest.mark.linearizable(linearizability.Register(0))
def test_tasks_see_one_register(history: Recorder) -> None:
    store = Store()

    async def client(number: int) -> None:
        for value in range(100 * number, 100 * number + 20):
            with history.op("write", value=value) as op:
                await asyncio.sleep(0)
                store.write(value)
                op.ok()
            with history.op("read") as op:
                op.ok(store.read())

    async def main() -> None:
        await asyncio.gather(*map(client, range(1, 4)))

    asyncio.run(main())


@pytest.mark.message_log
def test_the_broker_keeps_what_it_acknowledges(history: Recorder) -> None:
    broker = Broker()
    for message in range(1, 11):
        with history.op("send", key="q", value=message) as op:
            op.ok([broker.send(message), message], node="b")
    with history.op("replica-read", key="q", value=0, node="b") as op:
        op.ok(broker.read_all(), node="b", min=0, max=10, done=True)
