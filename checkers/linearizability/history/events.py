"""What all parts of the engine mean by the events of a history: the arrays, and the numbers for "none" and "never"."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]

NEVER: Final = 1 << 62
"""The position, or the time, of an event that never came: later than all others. An unknown op returns then."""

NONE: Final = -1
"""Instead of an op, of a position, or of the number of a value: there is none."""
