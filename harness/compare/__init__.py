# SPDX-License-Identifier: Apache-2.0
"""Comparisons of two builds: pairs of runs, a sequential test, the choice of cells, and the page (docs/compare.md)."""
