# SPDX-License-Identifier: Apache-2.0
"""The evidence for a verdict: witnesses, cores, explanations, pictures."""
