# SPDX-License-Identifier: Apache-2.0
"""The workload `consume`: a consumer group of RocketMQ's own Java clients, each in a process on a node of its own.

`workload` puts it together. `members` generates what the members do, `crew` has their processes, `client` executes the
ops, and `work` decides what producers put into messages.
"""
