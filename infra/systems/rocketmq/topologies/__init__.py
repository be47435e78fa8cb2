"""Topologies of RocketMQ: the servers on each node, and their configuration."""
