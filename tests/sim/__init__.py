# SPDX-License-Identifier: Apache-2.0
"""A simulated register service in virtual time, with bugs that can be planted: what the whole pipeline must catch."""
