"""Machines and servers: nodes, SSH, images, topologies, the remoting protocol. Floor 1: imports no other room."""
