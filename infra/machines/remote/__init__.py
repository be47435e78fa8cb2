"""Transports: how a command reaches a machine."""
