"""Region of a bucket of S3, of which obstore's errors say nothing."""

from __future__ import annotations

from contextlib import suppress
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import HTTPRedirectHandler, Request, build_opener

_HEADER = "x-amz-bucket-region"
_TIMEOUT_SECONDS = 5.0


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def find_region(endpoint: str, bucket: str) -> str:
    """Return the region that a service tells anybody of a bucket, or an empty string."""
    url = f"{endpoint or 'https://s3.amazonaws.com'}/{quote(bucket)}"
    with suppress(OSError, ValueError, HTTPException):
        try:
            request = Request(url, method="HEAD")  # noqa: S310 - an HTTP URL
            with build_opener(_NoRedirects).open(request, timeout=_TIMEOUT_SECONDS) as response:
                return str(response.headers.get(_HEADER, ""))
        except HTTPError as error:
            with error:
                return str(error.headers.get(_HEADER, ""))
    return ""
