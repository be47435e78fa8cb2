# SPDX-License-Identifier: Apache-2.0
"""Random numbers for pure values: the n-th draw of a stream is a function of (seed, n), without state in between.

Two equal calls of a generator must return the same result, so a generator cannot own a `random.Random` with changing
state. It holds a 64-bit seed, taken once from the `Random` given at construction, and counts its draws. The function is
SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). Its n-th output can be computed
without the n-1 outputs before it.
"""

from __future__ import annotations

from random import Random

_MASK = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15


def split(rng: Random) -> int:
    """The seed of a new stream. This moves `rng` on: split while building generators, never while they run."""
    return rng.getrandbits(64)


def draw(seed: int, n: int) -> int:
    """The n-th number of a stream: a whole number below 2**64."""
    z = seed + (n + 1) * _GOLDEN & _MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
    return z ^ z >> 31


def unit(seed: int, n: int) -> float:
    """The n-th number of a stream as a float in [0, 1)."""
    return (draw(seed, n) >> 11) * 2.0**-53


class Dice(Random):
    """A `Random` that can be put at any place of any stream: `dice.at(seed, n)` always rolls the same from there.

    Making a `Random` for every draw would cost more than the op it is for; moving one costs next to nothing.
    """

    _seed = 0
    _n = 0

    def at(self, seed: int, n: int) -> Dice:
        """The same dice, drawn again from the stream that belongs to (seed, n)."""
        self._seed = draw(seed, n)
        self._n = 0
        self.gauss_next = None
        return self

    def random(self) -> float:
        return (self._next() >> 11) * 2.0**-53

    def getrandbits(self, k: int, /) -> int:
        bits = 0
        for _ in range(0, k, 64):
            bits = bits << 64 | self._next()
        return bits >> (-k % 64)

    def _next(self) -> int:
        n = self._n
        self._n = n + 1
        return draw(self._seed, n)
