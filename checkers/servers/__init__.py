# SPDX-License-Identifier: Apache-2.0
"""Checkers of single servers and of their agreement: ends, logs, disks, terms, elections, state machines."""
