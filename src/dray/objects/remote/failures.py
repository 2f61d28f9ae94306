"""The answer of a remote store that did not do what was asked, in one line that is safe to print.

`obstore` repeats the whole request and the whole answer in its errors. A URL may carry a signature, and an
answer what was signed and by whom; so only what is known to be harmless is taken over: the request
without its query, the status, and the store's own code and message.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError, PreconditionError

from dray.objects.contract import ObjectError, ObjectExists, ObjectMissing, Unsupported

_REQUEST = "Error performing "
_QUERY = re.compile(r"\?[^\s,)\"]+")
_ANSWER = re.compile(r":?\s*[<{].*")
_STATUS = re.compile(r"status code: ([0-9]{3})")
_CODE = re.compile(r"<Code>([A-Za-z0-9.]{1,100})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,300})</Message>")
_REASONS = (
    re.compile(r'message: "([^"]{1,200})"'),
    re.compile(r'error: "([^"]{1,200})"'),
    re.compile(r"(InvalidCertificate\(\s*\w+)"),
    re.compile(r"source: (TimedOut)"),
)

_OBJECT_IS_MISSING = {None, "NoSuchKey", "BlobNotFound"}
"""The names that S3, GCS and Azure have for it. None: an answer to HEAD has no body. A store also answers 404
when the bucket or the account is missing, and that must not look as if an object were gone."""


_NO_CONNECTION = "kind: Connect"
_NO_REGION = "an incorrectly configured region"
_OVERLOADED = {408, 429, 500, 502, 503, 504}
_REFUSED = {401, 403}
_ELSEWHERE = {301, 307}

_ADVICE_BY_CODE: Final[Mapping[str, str]] = dict.fromkeys(
    ("NoSuchBucket", "ContainerNotFound"), "the bucket does not exist: create it, or correct objects.url"
) | {
    "RequestTimeTooSkewed": "this machine's clock and the store's differ: set this machine's right",
    "ExpiredToken": "the credentials have expired: renew objects.secrets, or what the provider gives them by",
    "AuthorizationHeaderMalformed": "the region is wrong: correct objects.options.region",
}


class RemoteFailure(ObjectError):
    """`status` and `code` are the store's own; both are None when there was no answer."""

    def __init__(
        self,
        line: str,
        status: int | None,
        code: str | None,
        *,
        reached: bool = True,
        wrong_region: bool = False,
    ) -> None:
        """`reached`: was there a server at all?"""
        super().__init__(line)
        self.status = status
        self.code = code
        self.is_passing = status in _OVERLOADED or (status is None and reached and not wrong_region)
        self.advice = self._advice(wrong_region=wrong_region or status in _ELSEWHERE)

    def _advice(self, *, wrong_region: bool) -> str:
        code = self.code or ""
        if code in _ADVICE_BY_CODE:
            return _ADVICE_BY_CODE[code]
        if code.startswith("KMS."):
            return "the bucket's key is not to be had: check the key, and who may use it"
        if self.status in _REFUSED:
            return (
                "access is refused: check objects.secrets (or the provider's environment variables), "
                "and that they allow to list, get, put and delete objects there"
            )
        if wrong_region:
            return "the bucket is in another region: correct objects.options.region (or .endpoint)"
        if self.is_passing:
            return "the store gives no answer in time" if self.status is None else "the store is overloaded"
        if self.status is None:
            return "no answer: check objects.options.endpoint and the network"
        return "it does not work as configured: check objects.url, objects.options and objects.secrets"


@contextmanager
def translated_errors(action: str, path: str) -> Iterator[None]:
    """Errors by our own names. Their cause is cut off on purpose: see the module's text."""
    try:
        yield
    except (AlreadyExistsError, PreconditionError):
        raise ObjectExists(f"{path}: there is an object already") from None
    except (BaseError, OSError, NotImplementedError) as error:
        text = str(error)
        code = _found(_CODE, text)
        if isinstance(error, FileNotFoundError) and code in _OBJECT_IS_MISSING:
            raise ObjectMissing(f"{path}: no such object") from None
        status = _found(_STATUS, text)
        if isinstance(error, (NotSupportedError, NotImplementedError)) or status == "501":
            raise Unsupported(f"cannot {action} {path or 'the bucket'}: {_one_line(error)}") from None
        raise RemoteFailure(
            f"cannot {action} {path or 'the bucket'}: {_one_line(error)}",
            int(status) if status else None,
            code,
            reached=_NO_CONNECTION not in text,
            wrong_region=_NO_REGION in text,
        ) from None


def _one_line(error: BaseError | OSError | NotImplementedError) -> str:
    text = str(error)
    lines = text.splitlines() or [type(error).__name__]
    line = _ANSWER.sub("", _QUERY.sub("?...", lines[0])).rstrip(" :")
    line = line[max(0, line.rfind(_REQUEST)) :]
    code, message = _found(_CODE, text), _found(_MESSAGE, text)
    if code is not None:
        return f"{line} ({code}{': ' + html.unescape(message) if message else ''})"
    for reason in _REASONS if _found(_STATUS, text) is None else ():
        found = _found(reason, text)
        if found is not None:
            return f"{line} ({' '.join(found.replace('(', ' ').split())})"
    return line


def _found(pattern: re.Pattern[str], text: str) -> str | None:
    matched = pattern.search(text)
    return matched[1] if matched else None
