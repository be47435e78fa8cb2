# SPDX-License-Identifier: Apache-2.0
"""Checks thousands of histories on Spark (docs/batch.md).

`units` defines the work, `portions` its parts, `job` runs them, and `files` finds input and output. The check itself is
a parameter: a function of a portion.

Nothing outside this folder imports Spark, which is the extra `spark`.
"""
