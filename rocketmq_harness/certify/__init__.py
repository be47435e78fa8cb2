# SPDX-License-Identifier: Apache-2.0
"""Certification of an operator's settings: his files whole, a fixed suite of faults, and one sheet of what held."""
