# SPDX-License-Identifier: Apache-2.0
"""The workload `consume`: a consumer group of RocketMQ's own Java clients, each in a process on a node of its own.

`workload` puts it together. `crew` has the members' processes, `client` executes the ops, `sender` has the producer's
process, and `work` decides what producers put into messages. `workloads.applications` has what other workloads share.
"""
