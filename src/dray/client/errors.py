"""How a client fails."""

from __future__ import annotations


class ClientError(Exception):
    """The broker cannot be reached, broke off, or said something that is not Kafka's protocol."""


class RequestFailed(Exception):
    """A broker answered with an error. The text is one line: what was attempted, the error's name, and the
    broker's own words."""

    def __init__(self, text: str) -> None:
        super().__init__(" ".join(text.split()))
