# SPDX-License-Identifier: Apache-2.0
"""Observation during a run: the nodes, the server processes, the machine of the control program."""
