# SPDX-License-Identifier: Apache-2.0
"""Topologies of RocketMQ: the servers on each node, and their configuration."""
