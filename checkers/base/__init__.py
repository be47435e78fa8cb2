"""The parts that every other room of the checkers uses: the interface, the permissions, the evidence around a time."""
