"""Storages of fsspec and HTTP for streamplug, and a kit for storages of clouds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamplug.plugin import lazy_names

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
    from streamplug_fsspec.event_loop import run_on_loop as run_on_loop
    from streamplug_fsspec.event_loop import store_on_loop as store_on_loop
    from streamplug_fsspec.fsspec_storage import FsspecStorage as FsspecStorage
    from streamplug_fsspec.fsspec_storage import version_of as version_of
    from streamplug_fsspec.hedging import make_hedges as make_hedges
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
    from streamplug_fsspec.rate_limiter import acquire_request as acquire_request
    from streamplug_fsspec.rate_limiter import limit_session as limit_session
    from streamplug_fsspec.rate_limiter import limiting as limiting
    from streamplug_fsspec.rate_limiter import note_answer as note_answer
    from streamplug_fsspec.rate_limiter import trace_requests as trace_requests
    from streamplug_fsspec.service_errors import RETRYABLE_CODES as RETRYABLE_CODES
    from streamplug_fsspec.service_errors import Refusal as Refusal
    from streamplug_fsspec.service_errors import error_of_code as error_of_code
    from streamplug_fsspec.service_errors import refusal_of as refusal_of
    from streamplug_fsspec.shared_clients import file_times as file_times
    from streamplug_fsspec.shared_clients import share_client as share_client
else:
    __getattr__, __all__ = lazy_names(
        __name__,
        {
            "blocks": "write_chunks",
            "body": "BodyError BodyPart OversizeBodyError bound_body bounded_reader "
            "check_content_range read_body read_range_body receive_body",
            "client_storage": "ClientStorage MAX_CONCURRENT_READS read_concurrently",
            "error_mapping": "NO_TLS_TEXT RETRYABLE_STATUSES client_error error_of_status lacks_tls "
            "missing_bucket status_of",
            "event_loop": "IncomingFile run_on_loop store_on_loop",
            "hedging": "make_hedges",
            "fsspec_storage": "FsspecStorage version_of",
            "http": "HttpStorage",
            "http_headers": "check_header_values",
            "memory": "MemoryStorage",
            "object_version": "conditional_reads one_version",
            "options": "OptionTypes check_options check_positive check_url endpoint_of_environment",
            "preallocation": "preallocate",
            "rate_limiter": "acquire_request limit_session limiting note_answer trace_requests",
            "service_errors": "RETRYABLE_CODES Refusal error_of_code refusal_of",
            "shared_clients": "file_times share_client",
        },
    )
