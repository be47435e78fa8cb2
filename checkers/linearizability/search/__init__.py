"""The searches in plain Python: they specify what `compiled` does, and run where nothing can be compiled."""
