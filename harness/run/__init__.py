# SPDX-License-Identifier: Apache-2.0
"""One run: its phases, and the interpreter that executes the ops of generators."""
