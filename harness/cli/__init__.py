"""The command line: commands, errors, signals, and everything that is printed."""
