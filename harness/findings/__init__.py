# SPDX-License-Identifier: Apache-2.0
"""Findings as data: the defect, the command that shows it, and its rate."""
