"""Fault primitives: what can be done to a node, and how to see that it was done.

Each returns a lease (or is over at once) and works on any `infra.machines.api.Node`. Which node is hit and when is
`nemesis/`'s business.
"""
