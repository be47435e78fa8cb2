# SPDX-License-Identifier: Apache-2.0
"""The numbers for what does not exist, in all parts of the engine."""

from __future__ import annotations

from typing import Final

NEVER: Final = 1 << 62
"""The position, or the time, of a missing event: later than all others. An unknown op returns then."""

NONE: Final = -1
"""Instead of an op, a position, an offset, or the number of a value, if it does not exist."""

ILLEGAL: Final = -1
"""Instead of a state: the step cannot be taken."""

PURE: Final = 1
"""The kind leaves every state in which it can happen unchanged."""

BLIND: Final = 2
"""The kind can happen in every state and always leaves the same one."""
