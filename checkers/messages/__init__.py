# SPDX-License-Identifier: Apache-2.0
"""Checkers of messages: logs, queues, delays, transactions, locks, routes, and the replicas that hold the messages."""
