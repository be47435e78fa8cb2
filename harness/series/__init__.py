"""Series of runs: each in its own process, on clusters that may be shared."""
