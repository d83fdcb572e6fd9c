"""Built-in storages: local files, memory, HTTP, and any protocol that fsspec knows."""
