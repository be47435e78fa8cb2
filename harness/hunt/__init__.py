# SPDX-License-Identifier: Apache-2.0
"""Hunts for what nobody planned: episodes of strikes at events, chosen so that all pairs of their properties occur."""
