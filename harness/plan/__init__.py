# SPDX-License-Identifier: Apache-2.0
"""The plan of a run as data: read, checked, written."""
