# SPDX-License-Identifier: Apache-2.0
"""A history as the searches see it: from calls to integers, and from columns to integers."""
