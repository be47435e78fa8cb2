# SPDX-License-Identifier: Apache-2.0
"""The searches that Numba compiles, with their arrays, memory, and cache of compiled code."""
