# SPDX-License-Identifier: Apache-2.0
"""Processes of applications with RocketMQ's own clients, on nodes of the cluster: the program, and its handle."""
