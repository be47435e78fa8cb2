"""Machines: nodes and how a command reaches them, backends, leases, images, fault primitives. Knows no server."""
