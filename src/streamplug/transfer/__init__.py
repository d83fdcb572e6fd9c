"""Transfer of bytes from storages: downloads, retries, range requests, prefetching, thread pools."""
