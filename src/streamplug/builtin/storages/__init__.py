"""Built-in storages."""
