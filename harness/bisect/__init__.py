# SPDX-License-Identifier: Apache-2.0
"""Bisection: the build in which a defect came in, and the one in which it went, from runs that show it now and then."""
