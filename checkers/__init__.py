"""Judges of histories. Floor 2. A checker is a function of what a run recorded; it never touches a machine."""
