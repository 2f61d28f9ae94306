"""What is translated_errors of a remote store's refusal: the store's own code, and never what was signed."""

from __future__ import annotations

import pytest
from obstore.exceptions import GenericError, NotSupportedError, PermissionDeniedError

from dray.objects import ObjectError, ObjectMissing
from dray.objects.contract import Unsupported
from dray.objects.remote.failures import RemoteFailure, translated_errors


def answer(status: str, body: str) -> str:
    return (
        "Object at location some/path not found: "
        "Error performing GET https://host/bucket/key?X-Sig=HIDDEN in 3ms - "
        f"Server returned non-2xx status code: {status}: {body}\n\nDebug source:\nHIDDEN"
    )


def failure(error: Exception) -> ObjectError:
    with pytest.raises(ObjectError) as caught, translated_errors("get", "some/path"):
        raise error
    assert "HIDDEN" not in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("code", ["NoSuchKey", "BlobNotFound"])
def test_a_missing_object_by_each_providers_name(code: str) -> None:
    body = f"<Error><Code>{code}</Code><Message>gone</Message></Error>"
    assert isinstance(failure(FileNotFoundError(answer("404 Not Found", body))), ObjectMissing)


def test_an_answer_without_a_body_is_a_missing_object() -> None:
    assert isinstance(failure(FileNotFoundError(answer("404 Not Found", ""))), ObjectMissing)


@pytest.mark.parametrize(
    "error",
    [
        NotSupportedError("Operation not supported"),
        NotImplementedError("Operation not yet implemented."),
        GenericError(answer("501 Not Implemented", "<Error><Code>NotImplemented</Code></Error>")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_a_store_does_not_have(error: Exception) -> None:
    """Conditional puts, above all."""
    assert isinstance(failure(error), Unsupported)
    assert not isinstance(failure(GenericError(answer("500 Internal", ""))), Unsupported)


@pytest.mark.parametrize("code", ["NoSuchBucket", "ContainerNotFound", "SomethingNew"])
def test_anything_else_that_is_missing_is_not_an_object(code: str) -> None:
    body = f"<Error><Code>{code}</Code></Error>"
    found = failure(FileNotFoundError(answer("404 Not Found", body)))
    assert isinstance(found, RemoteFailure)
    assert (found.status, found.code) == (404, code)


def test_the_code_and_the_message_are_told_and_nothing_else_of_the_answer() -> None:
    body = (
        "<Error><Code>SignatureDoesNotMatch</Code><Message>The key &quot;k&quot; is wrong.</Message>"
        "<StringToSign>HIDDEN</StringToSign></Error>"
    )
    found = failure(PermissionDeniedError(answer("403 Forbidden", body)))
    assert str(found) == (
        "cannot get some/path: Error performing GET https://host/bucket/key?... in 3ms - "
        'Server returned non-2xx status code: 403 Forbidden (SignatureDoesNotMatch: The key "k" is wrong.)'
    )


def test_an_answer_in_another_language_is_cut_off() -> None:
    found = failure(GenericError(answer("400 Bad Request", '{"error": {"message": "HIDDEN"}}')))
    assert str(found).endswith("status code: 400 Bad Request")


def test_why_nobody_answered_is_told() -> None:
    text = "Error performing PUT http://host/x in 1s - HTTP error: error sending request\n\nDebug source:\n"
    refused = failure(GenericError(text + 'Os { code: 111, message: "Connection refused" }'))
    assert isinstance(refused, RemoteFailure)
    assert refused.status is None
    assert str(refused).endswith("error sending request (Connection refused)")
    assert str(failure(GenericError(text + "source: TimedOut,"))).endswith("(TimedOut)")


@pytest.mark.parametrize(
    ("status", "code", "passing", "advice"),
    [
        ("503 Service Unavailable", "SlowDown", True, "the store is overloaded"),
        ("500 Internal Server Error", "InternalError", True, "the store is overloaded"),
        ("429 Too Many Requests", "", True, "the store is overloaded"),
        ("403 Forbidden", "AccessDenied", False, "access is refused: check objects.secrets"),
        ("403 Forbidden", "RequestTimeTooSkewed", False, "this machine's clock and the store's differ"),
        ("403 Forbidden", "ExpiredToken", False, "the credentials have expired"),
        ("404 Not Found", "NoSuchBucket", False, "the bucket does not exist"),
        ("301 Moved Permanently", "PermanentRedirect", False, "the bucket is in another region"),
        ("400 Bad Request", "AuthorizationHeaderMalformed", False, "the region is wrong"),
        ("400 Bad Request", "KMS.DisabledException", False, "the bucket's key is not to be had"),
        ("400 Bad Request", "InvalidRequest", False, "it does not work as configured"),
    ],
)
def test_the_advice_follows_what_the_store_says(status: str, code: str, passing: bool, advice: str) -> None:
    """A code with a dot is shown, too."""
    body = f"<Error><Code>{code}</Code></Error>" if code else ""
    found = failure(GenericError(answer(status, body)))
    assert found.is_passing is passing
    assert found.advice is not None
    assert found.advice.startswith(advice)
    assert code in str(found)


@pytest.mark.parametrize(
    ("text", "passing", "advice"),
    [
        ("HTTP error: error sending request\n kind: Timeout,", True, "the store gives no answer in time"),
        ("HTTP error: error sending request\n kind: Connect,", False, "no answer: check objects.options"),
        (
            "Received redirect without LOCATION, this normally indicates an incorrectly configured region",
            False,
            "the bucket is in another region",
        ),
    ],
)
def test_the_advice_where_there_was_no_status(text: str, passing: bool, advice: str) -> None:
    found = failure(GenericError(f"Error performing PUT http://host/x in 1s - {text}"))
    assert found.is_passing is passing
    assert found.advice is not None
    assert found.advice.startswith(advice)
