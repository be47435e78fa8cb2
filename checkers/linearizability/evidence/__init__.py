"""The evidence for a verdict: witnesses, cores, explanations, pictures."""
