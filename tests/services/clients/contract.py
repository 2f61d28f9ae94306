"""What a client adapter does for the tests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

SECONDS = 60.0
"""No single produce or fetch of a test takes longer: a hang is a failure, soon."""


CREATE_TIME, LOG_APPEND_TIME = "CreateTime", "LogAppendTime"
TIMESTAMP_TYPES = (CREATE_TIME, LOG_APPEND_TIME)
"""By the number that stands for them in a batch's attributes."""


@dataclass(frozen=True, slots=True)
class Message:
    """A record as users see it. An offset of -1 means that it has none yet."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = -1
    offset: int = -1
    timestamp_type: str = CREATE_TIME

    def at(self, offset: int) -> Message:
        return replace(self, offset=offset)


class Client(ABC):
    """One real client. Both calls are bounded in time and raise when they cannot do their work."""

    text_only: ClassVar[bool] = False
    """A command line cannot carry every byte, nor a different set of headers for every record."""

    @classmethod
    def can_write(cls, message: Message) -> bool:
        """Whether this client lets its users send such a message at all."""
        return True

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @abstractmethod
    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = 0,
        codec: str = "none",
        idempotent: bool = False,
    ) -> list[int]:
        """Write the messages and return the offsets that were acknowledged, in the order of the messages."""

    @abstractmethod
    def fetch(self, topic: str, count: int, *, partition: int = 0, start: int = 0) -> list[Message]:
        """Read `count` messages from an offset on, without a group."""
