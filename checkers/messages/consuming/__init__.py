# SPDX-License-Identifier: Apache-2.0
"""Judges of a consumer group of RocketMQ's own clients, by what its members told (`takes`).

`Delivered`: every message reaches the group, and none that it did not ask for. `Ordered`: an orderly group gets each
queue in order, and one member at a time works on it.
"""

from checkers.messages.consuming.delivered import Delivered
from checkers.messages.consuming.ordered import Ordered

__all__ = ["Delivered", "Ordered"]
