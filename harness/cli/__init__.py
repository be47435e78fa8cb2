# SPDX-License-Identifier: Apache-2.0
"""The command line: commands, errors, signals, and all output."""
