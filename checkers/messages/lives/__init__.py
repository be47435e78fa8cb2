# SPDX-License-Identifier: Apache-2.0
"""Topics that an administrator makes, changes, deletes and makes again: the life of each topic, and its messages.

A *life* of a topic begins with an acknowledged creation and ends with a deletion. `mqadmin` promises "Update or create
topic" and "Delete topic from broker and NameServer" (`UpdateTopicSubCommand`, `DeleteTopicSubCommand`, 5.3.3).
RocketMQ has no promise for what follows. A user must expect:

* The master of each broker group knows a topic whose creation was acknowledged and that was not deleted, with all its
  queues, and serves them: also another master, after a failover.
* No master knows a topic whose deletion was acknowledged.
* A topic that was made again shows no message of an earlier life, and no committed offset.
* In each life, the promises of a log hold (`checkers.messages.log`). No broker reports a minimum offset above its
  maximum, or above an acknowledged message that it has.

A request without an answer may have had an effect, or have one later. So nothing is expected of a topic after an
unanswered deletion. Reads that overlap the end or the beginning of a life are left out; sends that overlap a deletion
count as unanswered.

`split` sorts the ops into lives, `judge` compares the answers of masters and the reads with the promises above, and
`logs` hands each life to the judges of logs, and `members` judges what a consumer group got of each.
"""

from checkers.messages.lives.judge import TopicLives
from checkers.messages.lives.logs import LogOfLives, QueuesOfLives, ReplicasOfLives
from checkers.messages.lives.members import MembersOfLives
from checkers.messages.lives.split import lives_of, split

__all__ = ["LogOfLives", "MembersOfLives", "QueuesOfLives", "ReplicasOfLives", "TopicLives", "lives_of", "split"]
