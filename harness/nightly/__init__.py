"""Unattended runs: a matrix, a budget of time, priorities, and a page in the morning."""
