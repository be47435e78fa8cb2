# SPDX-License-Identifier: Apache-2.0
"""Unattended runs: a matrix, a budget of time, priorities, and a page in the morning."""
