"""How a client fails."""

from __future__ import annotations

from dray.kafka.protocol import ErrorCode


class ClientError(Exception):
    """The broker cannot be reached, broke off, or said something that is not Kafka's protocol."""


class AuthenticationFailed(ClientError):
    """The broker does not trust this client, or the client does not trust the broker. Another try with the
    same settings comes to the same."""


class RequestFailed(Exception):
    """A broker answered with an error. The text is one line: what was attempted, the error's name, and the
    broker's own words."""

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(" ".join(text.split()))
        self.code = code


def check(attempt: str, code: int, message: str | None = None) -> None:
    """Raises `RequestFailed` for every code but NONE."""
    if code != ErrorCode.NONE:
        raise RequestFailed(f"{attempt}: {ErrorCode.name_of(code)}{f': {message}' if message else ''}", code)
