"""What forwarding may take, and what it tells of itself."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardingLimits:
    most_bytes: int = 128 << 20
    """Of batches that one broker holds for its sources. Above it clients are asked to try again."""
    connections: int = 100
    """To each broker of a source. A connection carries one request at a time, so that this is also how many
    are under way there; the others wait for their turn."""
    attempt_seconds: float = 10.0
    """After so long without an answer a batch that may be sent again is sent again: its leader may be
    gone."""
    longest_seconds: float = 300.0
    """A batch is held for no longer, whatever its producer asks for."""
    idle_seconds: float = 240.0
    """Below the ten minutes after which Kafka ends an idle connection: a request that meets its end is
    lost."""


class ForwardOutcome(StrEnum):
    """What became of a batch."""

    AT_SOURCE = "source"
    """The source has stored it."""
    HERE = "here"
    """The topic is Dray's by now, and it was appended here."""
    REFUSED = "refused"
    """By the source, whose error the client got."""
    FAILED = "failed"
    """The source did not answer in time, or cannot be reached, or is not known here."""
    BUSY = "busy"
    """`most_bytes` were held already."""


class ForwardingObserver:
    """Does nothing with what it is told. Names of sources are those of the config."""

    def sent(self, upstream: str, size: int) -> None:
        """A request went to the source, with so many bytes of batches."""

    def answered(self, upstream: str, seconds: float) -> None:
        """It was answered, well or not."""

    def unanswered(self, upstream: str) -> None:
        """It was not: there is no connection, it broke off, or time was up."""

    def finished(self, outcome: ForwardOutcome) -> None: ...
