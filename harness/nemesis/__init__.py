# SPDX-License-Identifier: Apache-2.0
"""The faults of a run: their schedule, their targets, and the nemesis that injects them."""
