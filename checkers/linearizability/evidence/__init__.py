"""What a verdict is shown by: witnesses, cores, explanations, pictures."""
