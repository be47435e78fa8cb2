# SPDX-License-Identifier: Apache-2.0
"""Shrinks a plan: the smallest one that still shows the same anomaly, by sequential tests of real runs."""
