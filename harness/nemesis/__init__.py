"""Faults of a run: their schedule, their targets, and the nemesis that carries them out."""
