"""Transfer of bytes from storages: downloads, retries, range requests, prefetching, thread pools."""

from streamplug.transfer.decode_pool import decode_blocks
from streamplug.transfer.disk_errors import (
    map_disk_errors,
    map_output_errors,
    map_storage_errors,
    prefix_shard_errors,
    raise_local_error,
)
from streamplug.transfer.download import download_file
from streamplug.transfer.file_stat import MAX_STATS, MAX_STATS_IN_FLIGHT, file_versions
from streamplug.transfer.locks import (
    LOCK_POLL_SECONDS,
    STAGING_DIR,
    STATE_DIR,
    LockTimeoutError,
    cache_lock,
    file_lock,
    lock_slot,
    lock_slot_path,
    make_sibling_state,
    state_directory,
    try_directory_lock,
    try_file_lock,
    warn_stalled,
)
from streamplug.transfer.observer import (
    COUNTER_CELLS,
    Counters,
    Observer,
    TransferTask,
    emit,
    observer_context,
    process_number,
    task_context,
    track_download,
)
from streamplug.transfer.pool import Job, ThreadPool, check_process, map_threads
from streamplug.transfer.prefetch import Handover, PrefetchLimits, PrefetchWindow, prefetch_blocks
from streamplug.transfer.probe import (
    PROBE_RETRIES,
    ProbeStorage,
    UnavailableStorage,
    check_reachable,
)
from streamplug.transfer.ranges import (
    PARALLEL_DOWNLOAD_BYTES,
    PART_BYTES,
    PARTS_IN_FLIGHT,
    TruncatedFileError,
    check_parts,
    open_cancellable,
    parts_error,
)
from streamplug.transfer.retry import RETRYABLE_ERRORS, call_with_retries, max_pause_seconds
from streamplug.transfer.scan_files import (
    INDEX_SUFFIX,
    find_scan_file,
    read_scan_file,
    scan_file_path,
)
from streamplug.transfer.stall_timeout import StalledError
from streamplug.transfer.storage_wrapper import StorageWrapper
from streamplug.transfer.tempdir import TemporaryDirectory, check_private, make_temp_root, temp_root
from streamplug.transfer.timeout_storage import DOWNLOAD_TIMEOUT_SECONDS, TimeoutStorage
from streamplug.transfer.verify import size_error, verify_file

__all__ = [
    "COUNTER_CELLS",
    "DOWNLOAD_TIMEOUT_SECONDS",
    "INDEX_SUFFIX",
    "LOCK_POLL_SECONDS",
    "MAX_STATS",
    "MAX_STATS_IN_FLIGHT",
    "PARALLEL_DOWNLOAD_BYTES",
    "PARTS_IN_FLIGHT",
    "PART_BYTES",
    "PROBE_RETRIES",
    "RETRYABLE_ERRORS",
    "STAGING_DIR",
    "STATE_DIR",
    "Counters",
    "Handover",
    "Job",
    "LockTimeoutError",
    "Observer",
    "PrefetchLimits",
    "PrefetchWindow",
    "ProbeStorage",
    "StalledError",
    "StorageWrapper",
    "TemporaryDirectory",
    "ThreadPool",
    "TimeoutStorage",
    "TransferTask",
    "TruncatedFileError",
    "UnavailableStorage",
    "cache_lock",
    "call_with_retries",
    "check_parts",
    "check_private",
    "check_process",
    "check_reachable",
    "decode_blocks",
    "download_file",
    "emit",
    "file_lock",
    "file_versions",
    "find_scan_file",
    "lock_slot",
    "lock_slot_path",
    "make_sibling_state",
    "make_temp_root",
    "map_disk_errors",
    "map_output_errors",
    "map_storage_errors",
    "map_threads",
    "max_pause_seconds",
    "observer_context",
    "open_cancellable",
    "parts_error",
    "prefetch_blocks",
    "prefix_shard_errors",
    "process_number",
    "raise_local_error",
    "read_scan_file",
    "scan_file_path",
    "size_error",
    "state_directory",
    "task_context",
    "temp_root",
    "track_download",
    "try_directory_lock",
    "try_file_lock",
    "verify_file",
    "warn_stalled",
]
