# SPDX-License-Identifier: Apache-2.0
"""The workload `topics`: topics that are made, changed, deleted and made again while faults are active.

`lives` has the state of each topic as an administrator knows it, `load` the ops, `client` the requests, `workload` the
phases and the judges.
"""
