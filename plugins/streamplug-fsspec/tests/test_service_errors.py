from __future__ import annotations

import pytest
from streamplug_fsspec import Refusal, client_error, error_of_code, error_of_status

from streamplug.errors import AccessDenied, StorageError, Transient

URL = "s3://bucket/k"


class ClientError(Exception):
    """What botocore raises."""

    def __init__(self, status, headers=None, **error):
        super().__init__("s3cret")
        answer = {"HTTPStatusCode": status, "HTTPHeaders": headers or {}}
        self.response = {"ResponseMetadata": answer, "Error": error}


class AzureError(Exception):
    """What azure.core raises."""

    def __init__(self, status, code):
        super().__init__("s3cret")
        self.status_code, self.error_code = status, code


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (ClientError(400, Code="InvalidArgument"), StorageError, r"400 \(InvalidArgument\)"),
        (ClientError(400, Code="400"), StorageError, "answered 400$"),
        (ClientError(400, Code="AKIA0s3cret"), StorageError, "answered 400$"),
        (ClientError(403, Code="AccessDenied"), AccessDenied, r"no permission .*\(AccessDenied\)"),
        (ClientError(400, Code="Throttling"), Transient, r"400 \(Throttling\); it may be tried"),
        (
            ClientError(200, Code="InternalError"),
            Transient,
            r"answered InternalError; it may be tried",
        ),
        (ClientError(403, Code="RequestTimeTooSkewed"), AccessDenied, "the clocks of this machine"),
        (ClientError(403, Code="InvalidObjectState"), StorageError, "in an archive .*; restore it"),
        (ClientError(400, Code="KMS.DisabledException"), AccessDenied, "KMS.Dis.*key is disabled"),
        (
            ClientError(403, Code="AccessDenied", Message="s3cret not allowed: kms:Decrypt"),
            AccessDenied,
            r"\(AccessDenied\): its encryption key .* check the key in KMS",
        ),
        (
            ClientError(
                400,
                Code="InvalidRequest",
                Message="The object was stored using a form of Server Side Encryption. s3cret",
            ),
            StorageError,
            "encrypted with a key of its writer .*pass the key",
        ),
        (
            ClientError(400, Code="AuthorizationHeaderMalformed", Region="eu-west-3"),
            StorageError,
            r"in the region eu-west-3, .*\(Auth.*\); pass region='eu-west-3'",
        ),
        (
            ClientError(301, {"x-amz-bucket-region": "eu-west-3"}, Code="PermanentRedirect"),
            StorageError,
            "in the region eu-west-3, ",
        ),
        (ClientError(301, Code="PermanentRedirect", Region="<s3cret>"), StorageError, "another"),
        (AzureError(409, "BlobArchived"), StorageError, "in an archive"),
        (AzureError(400, "ServerBusy"), Transient, r"400 \(ServerBusy\)"),
        (AzureError(403, "AuthorizationFailure"), AccessDenied, r"\(AuthorizationFailure\)"),
    ],
)
def test_errors_have_the_code_of_the_service_and_no_text(error, kind, message):
    found = client_error(error, URL)
    assert type(found) is kind
    with pytest.raises(StorageError, match=message):
        raise found
    assert str(found).count(URL) == 1
    assert "s3cret" not in str(found)


@pytest.mark.parametrize(
    ("status", "code", "may_be"),
    [(403, "", True), (403, "AccessDenied", True), (401, "", False), (403, "ExpiredToken", False)],
)
def test_services_deny_what_is_missing_without_the_right_to_list(status, code, may_be):
    assert error_of_status(status, URL, code=code).may_be_missing == may_be


def test_other_codes_say_no_more_than_the_status():
    assert error_of_code(Refusal.of("InvalidArgument"), URL) is None
    assert Refusal.of(404, None, b"x") == Refusal()
