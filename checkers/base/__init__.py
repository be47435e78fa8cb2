# SPDX-License-Identifier: Apache-2.0
"""The parts that every other room of the checkers uses: the interface, the permissions, the evidence around a time."""
