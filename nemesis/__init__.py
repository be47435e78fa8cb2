"""The faults. Layer 4. A fault chooses targets and an injection; it does not know how a command reaches a node."""
