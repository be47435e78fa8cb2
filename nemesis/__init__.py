# SPDX-License-Identifier: Apache-2.0
"""The faults. Layer 4. A fault chooses targets and an injection; it does not know the way of a command to a node."""
