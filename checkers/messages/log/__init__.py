# SPDX-License-Identifier: Apache-2.0
"""Checkers of messages in queues: lost, duplicated, reordered, or returned too early; and the agreement of replicas.

`columns` converts a history to columns, `replica_reads` to the final content of each replica. `outcomes` and `order`
contain the rules. The checkers convert their findings to anomalies (`anomalies`, `replicas`, `linear`). `message_ids`
checks one separate property.
"""

from checkers.messages.log.anomalies import LogAnomalies
from checkers.messages.log.linear import LogLinearizable
from checkers.messages.log.message_ids import MessageIds
from checkers.messages.log.replicas import Replicas

__all__ = ["LogAnomalies", "LogLinearizable", "MessageIds", "Replicas"]
