"""What an exchange comes to, one token of the client at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias


@dataclass(frozen=True, slots=True)
class SaslChallenge:
    """The exchange goes on: the client answers this."""

    token: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SaslSuccess:
    """The client is who it says. `expires_ms`: wall-clock time at which the credential ends, if it does.
    `still_holds`: whether the credential is still there. A user that was deleted is served no longer, even
    if it was added again; Kafka serves it until it disconnects."""

    user: str
    token: bytes = field(default=b"", repr=False)
    expires_ms: int | None = None
    still_holds: Callable[[], bool] = field(default=lambda: True, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class SaslRefusal:
    """`message` is for the client, and must not say why. None stands for the general message. `reason` is for
    the log, and holds no byte that the client sent."""

    reason: str
    message: str | None = None
    user: str | None = None


@dataclass(frozen=True, slots=True)
class SaslWork:
    """Work that takes a millisecond or more: called in a thread, it gives the step."""

    work: Callable[[], SaslChallenge | SaslSuccess | SaslRefusal]


SaslStep: TypeAlias = SaslChallenge | SaslSuccess | SaslRefusal | SaslWork


class SaslExchange(Protocol):
    """One attempt of one client with one mechanism."""

    def evaluate(self, token: bytes) -> SaslStep: ...


OTHER_AUTHORIZATION_ID = (
    "Authentication failed: Client requested an authorization id that is different from username"
)
