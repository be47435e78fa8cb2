# SPDX-License-Identifier: Apache-2.0
"""Transports: the ways of a command to a machine."""
