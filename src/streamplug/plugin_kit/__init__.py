"""Helpers for authors of plugins."""

from streamplug.plugin_kit.array_header import pack_shape, parse_array_spec, unpack_shape
from streamplug.plugin_kit.cancellation import (
    Cancelled,
    OversizeError,
    Scope,
    check,
    consumed_elsewhere,
    current,
    ending,
    idle,
    inside,
    sleep,
)
from streamplug.plugin_kit.check_columns import (
    check_names,
    count_of,
    encoded_bytes,
    length_of,
    names_and_specs,
    unencodable_error,
)
from streamplug.plugin_kit.codec_errors import (
    damaged_error,
    describe_start,
    large_value_error,
    naming_codec,
    parsing,
    short_repr,
    too_large_error,
    wrong_type_error,
)
from streamplug.plugin_kit.content import HEAD_BYTES, describe_misnamed
from streamplug.plugin_kit.decoding import decode_error, decode_values, undecodable_error, windows
from streamplug.plugin_kit.disk import (
    DISK_FULL_ERRNOS,
    OUTPUT_REMEDIES,
    describe_full_disk,
    is_full_disk,
)
from streamplug.plugin_kit.error_mapping import (
    causes_of,
    denied_error,
    is_local,
    missing_error,
    retryable_cause,
    storage_error,
)
from streamplug.plugin_kit.file_commit import (
    STAGING_PREFIX,
    commit_file,
    make_directory,
    stage_file,
    staging_path,
    sync_directory,
    sync_file,
    sync_files,
)
from streamplug.plugin_kit.merge import PlacedValues, merge_values
from streamplug.plugin_kit.parent_process import abandoned, end_with_parent
from streamplug.plugin_kit.streaming_codec import FrameDecoder, StreamingCompression
from streamplug.plugin_kit.system_calls import system_call
from streamplug.plugin_kit.system_directories import SYSTEM_DIRECTORIES

__all__ = [
    "DISK_FULL_ERRNOS",
    "HEAD_BYTES",
    "OUTPUT_REMEDIES",
    "STAGING_PREFIX",
    "SYSTEM_DIRECTORIES",
    "Cancelled",
    "FrameDecoder",
    "OversizeError",
    "PlacedValues",
    "Scope",
    "StreamingCompression",
    "abandoned",
    "causes_of",
    "check",
    "check_names",
    "commit_file",
    "consumed_elsewhere",
    "count_of",
    "current",
    "damaged_error",
    "decode_error",
    "decode_values",
    "denied_error",
    "describe_full_disk",
    "describe_misnamed",
    "describe_start",
    "encoded_bytes",
    "end_with_parent",
    "ending",
    "idle",
    "inside",
    "is_full_disk",
    "is_local",
    "large_value_error",
    "length_of",
    "make_directory",
    "merge_values",
    "missing_error",
    "names_and_specs",
    "naming_codec",
    "pack_shape",
    "parse_array_spec",
    "parsing",
    "retryable_cause",
    "short_repr",
    "sleep",
    "stage_file",
    "staging_path",
    "storage_error",
    "sync_directory",
    "sync_file",
    "sync_files",
    "system_call",
    "too_large_error",
    "undecodable_error",
    "unencodable_error",
    "unpack_shape",
    "windows",
    "wrong_type_error",
]
