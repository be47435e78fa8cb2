"""What an object may do: the contract of a model, and the models that come with the checker."""
