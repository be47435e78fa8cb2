"""Checkers of any run: its form, its load, its faults, and the service that clients saw."""
