# SPDX-License-Identifier: Apache-2.0
"""The inputs of `tests.fuzz.bad_input`: one bad input a call, made from a seed of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Final

from fuzz.bad_commands import options_of_others, options_of_run, options_together, outputs, plans, surroundings
from fuzz.bad_common import Case
from fuzz.bad_files import bombs, histories, lists, odd_files, odd_values, parquet, requests, stores, tables
from fuzz.bad_series import SERIES

MAKERS: Final[Sequence[tuple[Callable[[Random, Path], Case], int]]] = (
    (options_of_run, 12),
    (options_together, 5),
    (options_of_others, 10),
    (plans, 12),
    (histories, 16),
    (odd_values, 8),
    (odd_files, 6),
    (parquet, 8),
    (lists, 4),
    (stores, 10),
    (requests, 5),
    (tables, 4),
    (outputs, 4),
    (surroundings, 2),
    (bombs, 1),
    *SERIES,
)
"""With how often each is drawn."""


def case(
    seed: int, number: int, folder: Path, makers: Sequence[tuple[Callable[[Random, Path], Case], int]] = MAKERS
) -> Case:
    """Case `number` of a seed; its files go into `folder`, which is there and empty."""
    rng = Random(f"{seed}/{number}")
    maker = rng.choices([maker for maker, _ in makers], weights=[weight for _, weight in makers])[0]
    return maker(rng, folder)
