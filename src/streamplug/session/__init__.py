"""The reading of a data set epoch after epoch: between the plan, the bytes and whoever iterates."""
