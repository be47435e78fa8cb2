"""What clients do and what must hold. Floor 4."""
