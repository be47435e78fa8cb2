"""Machines and servers: nodes, SSH, images, topologies, the remoting protocol. Layer 2: imports only `results`."""
