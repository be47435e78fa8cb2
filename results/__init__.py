# SPDX-License-Identifier: Apache-2.0
"""The output of a run: operations, history, journal, verdict, store, report. Layer 1: imports no other package."""
