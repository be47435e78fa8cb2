# SPDX-License-Identifier: Apache-2.0
"""Checkers of consumer groups: committed offsets, deliveries and redeliveries, resets, leases of popped messages."""

from checkers.messages.queue.deliveries import Deliveries
from checkers.messages.queue.leases import Leases
from checkers.messages.queue.offsets import Offsets
from checkers.messages.queue.replays import Replays

__all__ = ["Deliveries", "Leases", "Offsets", "Replays"]
