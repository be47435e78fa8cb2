# SPDX-License-Identifier: Apache-2.0
"""The findings for one object that converges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from results.verdict import Anomaly


class Findings(NamedTuple):
    """doubt: the reason why the final reads do not show that all nodes agree; "" if they do. acknowledged: the number
    of what was acknowledged. notes: text -> number of cases, shown if there are any.
    """

    anomalies: Sequence[Anomaly]
    doubt: str
    acknowledged: int
    notes: Mapping[str, int]
