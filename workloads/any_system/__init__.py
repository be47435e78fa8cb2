# SPDX-License-Identifier: Apache-2.0
"""The workload `any`: a model's operations on any server, by a client program of the user (docs/any-system.md).

`pipe` speaks to the client program, `objects` has the operations of each model, and `workload` puts them together.
"""
