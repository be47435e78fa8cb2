# SPDX-License-Identifier: Apache-2.0
"""Clients of applications, each in a process on a node of its own: what workloads with such clients share.

`crew` has the processes, `members` generates what becomes of them, and `library` explains the results of RocketMQ's
Java client.
"""
