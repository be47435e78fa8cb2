"""One run: its phases, and the interpreter that executes the ops of generators."""
