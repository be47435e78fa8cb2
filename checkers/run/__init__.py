# SPDX-License-Identifier: Apache-2.0
"""Checkers of any run: its form, its load, its faults, and the service that clients saw."""
