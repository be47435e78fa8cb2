# SPDX-License-Identifier: Apache-2.0
"""Machines: nodes and the ways to them, backends, leases, images, fault primitives. It knows no server."""
