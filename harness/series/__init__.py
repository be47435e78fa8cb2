# SPDX-License-Identifier: Apache-2.0
"""Series of runs: each in its own process, on clusters that may be shared."""
