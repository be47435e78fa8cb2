# SPDX-License-Identifier: Apache-2.0
"""The outcome of an operation, in the terms of the history: what every client's outcome table returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OutcomeType = Literal["ok", "fail", "info"]
"""`ok`: certainly happened. `fail`: certainly did not, and never will. `info`: unknown."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A server's answer as an outcome. `why` is one line in plain words; empty for `ok`."""

    type: OutcomeType
    why: str
