"""Judges of messages in queues: was anything lost, duplicated, reordered, shown too early; do the replicas agree?

`facts` turns a history into columns, `readings` into what each replica holds in the end; `fates` and `order` hold the
rules of what must not be, and the judges turn what these find into anomalies (`anomalies`, `replicas`, `linear`).
`message_ids` asks one thing of its own.
"""

from checkers.log.anomalies import LogAnomalies
from checkers.log.linear import LogLinearizable
from checkers.log.message_ids import MessageIds
from checkers.log.replicas import Replicas

__all__ = ["LogAnomalies", "LogLinearizable", "MessageIds", "Replicas"]
