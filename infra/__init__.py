# SPDX-License-Identifier: Apache-2.0
"""Machines and servers: nodes, SSH, images, topologies, the remoting protocol. Layer 2: imports only `results`."""
