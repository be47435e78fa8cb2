"""The plan of a run as data: read, checked, written."""
