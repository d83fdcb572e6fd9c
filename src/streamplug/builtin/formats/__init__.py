"""Built-in shard formats."""
