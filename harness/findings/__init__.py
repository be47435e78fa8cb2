"""Findings as data: the defect, the command that shows it, and its rate."""
