"""The searches that numba compiles, and what they need: arrays, memory, a cache of compiled code."""
