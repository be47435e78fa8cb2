# SPDX-License-Identifier: Apache-2.0
"""Judges of a consumer group of RocketMQ's own clients, by the reports of its members (`takes`).

`Delivered`: every message reaches the group, and none that it did not ask for. `Ordered`: an orderly group gets each
queue in order, and one member at a time works on it. `Retried`: a message that failed comes again as often and as late
as promised, and becomes a dead letter then. `Broadcast`: every member gets every message. `Prompt`: a calm group gets a
message soon. `Progress`: no queue stands still while messages wait. `Groups`: the members and the brokers agree on who
is there, and each queue has one owner.
`Invisible`: a message that was popped is hidden for its duration, and comes again after it.
`Replies`: a reply belongs to its request, and reaches its producer.
`Replayed`: what an administrator reset the offset back to comes again.
`GroupSettings`: the group is what its administrator made of it, and gets nothing while it is off.
`TimedOut`: a message that its listener keeps for too long comes again.
`Returned`: what a process had that ended comes to another one in time.
`Lag`: the committed offsets and the lag that administrators see are those of the group.
"""

from checkers.messages.consuming.broadcast import Broadcast
from checkers.messages.consuming.delivered import Delivered
from checkers.messages.consuming.groups import Groups
from checkers.messages.consuming.invisible import Invisible
from checkers.messages.consuming.lag import Lag
from checkers.messages.consuming.ordered import Ordered
from checkers.messages.consuming.prompt import Prompt
from checkers.messages.consuming.replayed import Replayed
from checkers.messages.consuming.replies import Replies
from checkers.messages.consuming.retried import Retried
from checkers.messages.consuming.returned import Returned
from checkers.messages.consuming.settings import GroupSettings
from checkers.messages.consuming.stalled import Progress
from checkers.messages.consuming.timed_out import TimedOut

__all__ = [
    "Broadcast",
    "Delivered",
    "GroupSettings",
    "Groups",
    "Invisible",
    "Lag",
    "Ordered",
    "Progress",
    "Prompt",
    "Replayed",
    "Replies",
    "Retried",
    "Returned",
    "TimedOut",
]
