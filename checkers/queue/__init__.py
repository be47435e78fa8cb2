"""Checkers of consumer groups: committed offsets, deliveries and redeliveries, leases of popped messages."""

from checkers.queue.deliveries import Deliveries
from checkers.queue.leases import Leases
from checkers.queue.offsets import Offsets

__all__ = ["Deliveries", "Leases", "Offsets"]
