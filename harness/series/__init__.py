"""Series of runs: each in a process of its own, on clusters that may be shared."""
