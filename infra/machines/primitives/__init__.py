# SPDX-License-Identifier: Apache-2.0
"""Fault primitives: actions on a node, and probes for their effect.

Each returns a lease (or ends at once) and works on any `infra.machines.api.Node`. `nemesis/` decides on nodes and
times.
"""
