# SPDX-License-Identifier: Apache-2.0
"""Advice for operators: what their settings promise, which findings apply, and what was measured; no servers needed."""
