# SPDX-License-Identifier: Apache-2.0
"""Checkers of histories. Layer 2. A checker is a function of the record of a run; it never accesses a machine."""
