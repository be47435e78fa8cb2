# SPDX-License-Identifier: Apache-2.0
"""The representation of a history's events in all parts of the engine: arrays, and the numbers for none and never."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]

NO_BITS: Final = np.uint64(0)
ONE_BIT: Final = np.uint64(1)
LOW_HALF: Final = np.uint64(0xFFFFFFFF)
"""Words for compiled code, which must not mix them with signed numbers."""

NEVER: Final = 1 << 62
"""The position, or the time, of a missing event: later than all others. An unknown op returns then."""

NO_ROWS: Final = np.zeros(0, np.int64)
"""No rows at all."""

NONE: Final = -1
"""Instead of an op, a position, an offset, or the number of a value, if it does not exist."""
