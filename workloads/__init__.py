# SPDX-License-Identifier: Apache-2.0
"""The operations of clients and the guarantees to check. Layer 4."""
