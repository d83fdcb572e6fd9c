"""The local cache of shards: admission, quota, eviction, staging files, identity, offline copies."""
