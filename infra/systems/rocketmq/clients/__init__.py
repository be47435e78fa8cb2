"""Clients that others wrote, each in a process of its own: they abort, hang and retry, and their packages exclude one
another (all own the top-level package `rocketmq`).

    native          librocketmq (C++) through rocketmq-client-python
    proxy           gRPC through RocketMQ's proxy, with the protocol code of rocketmq-python-client
    packages        where their packages come from
    worker, child   the two ends of the pipe between us and such a process
"""
