"""Special cases that need no search: near-linear time, however many clients, however many unknown ops.

Each monitor takes a problem and answers valid (with a witness), invalid (with the event that proves it and a few ops
that contradict each other already), or None where it has no rule: values that are not unique, an op that it does not
know. `checkers.linearizability.fast` says which model has which.
"""
