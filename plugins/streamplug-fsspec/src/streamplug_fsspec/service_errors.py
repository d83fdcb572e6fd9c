"""Error codes of cloud services, and what they mean for a request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamplug.errors import AccessDenied, StorageError, Transient
from streamplug.plugin_kit import causes_of

_CODE = re.compile(r"[A-Za-z][A-Za-z.]{0,79}")
_REGION = re.compile(r"[a-z0-9-]{1,40}")

THROTTLING_CODES = frozenset(
    (
        *("BandwidthLimitExceeded", "PriorRequestNotComplete", "RequestLimitExceeded"),
        *("RequestThrottled", "RequestThrottledException", "ServerBusy", "SlowDown"),
        *("ThrottledException", "Throttling", "ThrottlingException"),
        *("TooManyRequests", "TooManyRequestsException"),
    )
)
"""Codes with which services ask for fewer requests."""

RETRYABLE_CODES = THROTTLING_CODES | {
    *("ConditionalRequestConflict", "InternalError", "InternalServerError", "OperationAborted"),
    *("OperationTimedOut", "RequestTimeout", "RequestTimeoutException", "ServiceUnavailable"),
}
"""Codes of failures that may pass, whatever their status."""

_CLOCK_CODES = frozenset(("RequestExpired", "RequestTimeTooSkewed"))
_REGION_CODES = frozenset(
    (
        *("AuthorizationHeaderMalformed", "IllegalLocationConstraintException"),
        *("IncorrectEndpoint", "PermanentRedirect", "TemporaryRedirect"),
    )
)
_ARCHIVE_CODES = frozenset(("BlobArchived", "BlobBeingRehydrated", "InvalidObjectState"))
_OWN_KEY_CODES = frozenset(("BlobUsesCustomerSpecifiedEncryption",))
_OWN_KEY_TEXT = re.compile(r"form of Server Side Encryption|SSE-C|customer-provided", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a service says of a request that it did not serve.

    Attributes:
        code: Its error code; empty if it tells none of letters and dots.
        message: Its text, which may contain secrets.
        region: Region of the bucket, if it tells that; else empty.
    """

    code: str = ""
    message: str = ""
    region: str = ""

    @classmethod
    def of(cls, code: object, message: object = "", region: object = "") -> Refusal:
        """Return the refusal that a response tells, without a code or region that can be none."""
        return cls(
            code if isinstance(code, str) and _CODE.fullmatch(code) else "",
            message if isinstance(message, str) else "",
            region if isinstance(region, str) and _REGION.fullmatch(region) else "",
        )


def refusal_of(error: BaseException) -> Refusal:
    """Return what an exception of a common client tells."""
    for cause in causes_of(error):
        response = getattr(cause, "response", None)
        if isinstance(response, dict):  # botocore
            told = response.get("Error", {})
            headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
            region = told.get("Region") or headers.get("x-amz-bucket-region")
            return Refusal.of(told.get("Code"), told.get("Message"), region)
        azure = getattr(cause, "error_code", None)
        refusal = Refusal.of(getattr(azure, "value", azure) or _code(cause))
        if refusal.code:
            return refusal
    return Refusal()


def _code(error: BaseException) -> Any:
    """Return the code of an error of gcsfs or oci."""
    told = getattr(error, "_error_response", None)
    if isinstance(told, Mapping):
        errors = told.get("errors")
        first = errors[0] if isinstance(errors, list) and errors else None
        return first.get("reason") if isinstance(first, Mapping) else None
    # From __dict__: some clients have a deprecated property of this name.
    return getattr(error, "__dict__", {}).get("code")


def error_of_code(refusal: Refusal, url: str, status: int | None = None) -> StorageError | None:
    """Return the storage error for a code that says more than the status; None for others.

    Args:
        refusal: What the service says.
        url: URL of the object, without credentials.
        status: HTTP status, if it is known.
    """
    code = refusal.code
    if code in RETRYABLE_CODES:
        answer = f"{status} ({code})" if status else code
        return Transient(f"{url}: the server answered {answer}; it may be tried again")
    if code in _CLOCK_CODES:
        return AccessDenied(
            f"no permission for {url} ({code}): the clocks of this machine and of the server differ; set the "
            "clock of this machine"
        )
    if code in _ARCHIVE_CODES:
        return StorageError(
            f"{url} is in an archive ({code}); restore it, or copy it to a storage class that can be read"
        )
    if code.startswith("KMS.") or "kms:" in refusal.message:
        return AccessDenied(
            f"no permission for {url} ({code}): its encryption key is disabled, or may not be used; check "
            "the key in KMS, and whether the credentials may use it"
        )
    if code in _OWN_KEY_CODES or (code == "InvalidRequest" and _is_of_own_key(refusal)):
        return StorageError(
            f"{url} is encrypted with a key of its writer ({code}), which requests must have; pass the key "
            "in the options of the client, or write it again without"
        )
    if code in _REGION_CODES:
        return _other_region(refusal, url)
    return None


def _is_of_own_key(refusal: Refusal) -> bool:
    return _OWN_KEY_TEXT.search(refusal.message) is not None


def _other_region(refusal: Refusal, url: str) -> StorageError:
    region = refusal.region
    where = f"the region {region}" if region else "another region"
    advice = f"pass region={region!r}" if region else "pass the region of the bucket as region="
    return StorageError(
        f"{url}: its bucket is in {where}, which requests are not for ({refusal.code}); {advice}, or the "
        "endpoint_url= of that region"
    )
