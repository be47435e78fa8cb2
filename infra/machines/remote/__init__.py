"""Transports: the ways of a command to a machine."""
