"""Storages of fsspec and HTTP for streamplug, and a kit for storages of clouds."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamplug_fsspec.blocks import write_chunks as write_chunks
    from streamplug_fsspec.body import BodyError as BodyError
    from streamplug_fsspec.body import BodyPart as BodyPart
    from streamplug_fsspec.body import OversizeBodyError as OversizeBodyError
    from streamplug_fsspec.body import bound_body as bound_body
    from streamplug_fsspec.body import bounded_reader as bounded_reader
    from streamplug_fsspec.body import check_content_range as check_content_range
    from streamplug_fsspec.body import read_body as read_body
    from streamplug_fsspec.body import read_range_body as read_range_body
    from streamplug_fsspec.body import receive_body as receive_body
    from streamplug_fsspec.client_storage import MAX_CONCURRENT_READS as MAX_CONCURRENT_READS
    from streamplug_fsspec.client_storage import ClientStorage as ClientStorage
    from streamplug_fsspec.client_storage import read_concurrently as read_concurrently
    from streamplug_fsspec.error_mapping import NO_TLS_TEXT as NO_TLS_TEXT
    from streamplug_fsspec.error_mapping import RETRYABLE_STATUSES as RETRYABLE_STATUSES
    from streamplug_fsspec.error_mapping import client_error as client_error
    from streamplug_fsspec.error_mapping import error_of_status as error_of_status
    from streamplug_fsspec.error_mapping import lacks_tls as lacks_tls
    from streamplug_fsspec.error_mapping import missing_bucket as missing_bucket
    from streamplug_fsspec.error_mapping import status_of as status_of
    from streamplug_fsspec.event_loop import IncomingFile as IncomingFile
    from streamplug_fsspec.event_loop import gather_results as gather_results
    from streamplug_fsspec.event_loop import run_on_loop as run_on_loop
    from streamplug_fsspec.event_loop import store_on_loop as store_on_loop
    from streamplug_fsspec.fsspec_storage import FsspecStorage as FsspecStorage
    from streamplug_fsspec.fsspec_storage import version_of as version_of
    from streamplug_fsspec.http import HttpStorage as HttpStorage
    from streamplug_fsspec.http_headers import check_header_values as check_header_values
    from streamplug_fsspec.memory import MemoryStorage as MemoryStorage
    from streamplug_fsspec.object_version import conditional_reads as conditional_reads
    from streamplug_fsspec.object_version import one_version as one_version
    from streamplug_fsspec.options import OptionTypes as OptionTypes
    from streamplug_fsspec.options import check_options as check_options
    from streamplug_fsspec.options import check_positive as check_positive
    from streamplug_fsspec.options import check_url as check_url
    from streamplug_fsspec.options import endpoint_of_environment as endpoint_of_environment
    from streamplug_fsspec.preallocation import preallocate as preallocate
    from streamplug_fsspec.service_errors import RETRYABLE_CODES as RETRYABLE_CODES
    from streamplug_fsspec.service_errors import Refusal as Refusal
    from streamplug_fsspec.service_errors import error_of_code as error_of_code
    from streamplug_fsspec.service_errors import refusal_of as refusal_of

_MODULES = {
    "BodyError": "body",
    "BodyPart": "body",
    "ClientStorage": "client_storage",
    "FsspecStorage": "fsspec_storage",
    "HttpStorage": "http",
    "IncomingFile": "event_loop",
    "MAX_CONCURRENT_READS": "client_storage",
    "MemoryStorage": "memory",
    "NO_TLS_TEXT": "error_mapping",
    "OptionTypes": "options",
    "OversizeBodyError": "body",
    "RETRYABLE_CODES": "service_errors",
    "RETRYABLE_STATUSES": "error_mapping",
    "Refusal": "service_errors",
    "bound_body": "body",
    "bounded_reader": "body",
    "check_content_range": "body",
    "check_header_values": "http_headers",
    "check_options": "options",
    "check_positive": "options",
    "check_url": "options",
    "client_error": "error_mapping",
    "conditional_reads": "object_version",
    "endpoint_of_environment": "options",
    "error_of_code": "service_errors",
    "error_of_status": "error_mapping",
    "gather_results": "event_loop",
    "lacks_tls": "error_mapping",
    "missing_bucket": "error_mapping",
    "one_version": "object_version",
    "preallocate": "preallocation",
    "read_body": "body",
    "read_concurrently": "client_storage",
    "read_range_body": "body",
    "receive_body": "body",
    "refusal_of": "service_errors",
    "run_on_loop": "event_loop",
    "status_of": "error_mapping",
    "store_on_loop": "event_loop",
    "version_of": "fsspec_storage",
    "write_chunks": "blocks",
}

__all__ = list(_MODULES)


if not TYPE_CHECKING:  # hidden from type checkers, which would accept any name

    def __getattr__(name: str) -> Any:
        # Imported lazily, as the discovery of plugins imports this package.
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
