"""Ways in which a command reaches a machine."""
