"""Findings as data: what was found, how to see it again, how often it shows."""
