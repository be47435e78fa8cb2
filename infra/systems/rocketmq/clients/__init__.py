# SPDX-License-Identifier: Apache-2.0
"""Foreign clients, each in its own process: they abort, hang and retry, and their packages exclude one
another (all own the top-level package `rocketmq`).

    native          librocketmq (C++) through rocketmq-client-python
    proxy           gRPC through RocketMQ's proxy, with the protocol code of rocketmq-python-client
    packages        the source of their packages
    worker, child   the two ends of the pipe between the harness and such a process
"""
