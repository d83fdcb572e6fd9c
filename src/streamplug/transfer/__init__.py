"""Bytes from a storage to local files or memory: downloads, retries, ranges, prefetching, thread pools."""
