# SPDX-License-Identifier: Apache-2.0
"""The end of a series that has used up its runs or its time."""

from __future__ import annotations


class Spent(Exception):
    """The number of runs, or the time, is used up: the reason, in words. What was found before stands."""
