"""The searches that Numba compiles, with their arrays, memory, and cache of compiled code."""
