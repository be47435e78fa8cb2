"""The command line: commands, errors, signals, and all output."""
