# SPDX-License-Identifier: Apache-2.0
"""The searches in plain Python: the specification of those in `compiled`, for machines without a compiler."""
