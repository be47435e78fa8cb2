# SPDX-License-Identifier: Apache-2.0
"""Special cases that need no search: near-linear time, for any number of clients and unknown ops.

Each monitor takes a problem and answers valid (with a witness), invalid (with the event that proves it and a few ops
that contradict each other already), or None if no rule applies: values that are not unique, an op that it does not
know. `checkers.linearizability.fast` lists the monitor of each model.
"""
