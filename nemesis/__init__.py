"""What goes wrong: faults. Floor 4. A fault says whom it hits and how; it never knows how a command reaches a node."""
