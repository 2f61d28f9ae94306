"""Topics that another cluster owns, or owned: what this broker asks about them.

`daemons/broker/` brings the answers from the rooms that know. Nothing here is asked of a topic that began in
this cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias
from uuid import UUID

from dray.kafka.protocol import Buffer, ErrorCode
from dray.kafka.protocol.messages.produce import PartitionProduceResponse

OwnersAnswer: TypeAlias = PartitionProduceResponse | tuple[ErrorCode, str] | None
"""The owner's, or why there is none; None: the batch is to be appended here."""


class OwnedBatch(NamedTuple):
    topic: str
    topic_id: UUID
    partition: int
    stream: int
    records: Buffer


class OtherOwner(Protocol):
    def owns(self, stream: int) -> bool:
        """Whether its batches are handed over, as far as is known here. The log itself refuses what is not
        its own, and the owner gives back what is not."""
        ...

    async def append(
        self, batches: Sequence[OwnedBatch], *, acks: int, seconds: float
    ) -> tuple[Sequence[OwnersAnswer], int]:
        """The answer for each batch, and how long the client is to wait, in milliseconds."""
        ...


# --- how a topic changes hands


class LinkedTopics(Protocol):
    """Raises `TopicsUnavailable` where the store does not answer."""

    async def is_diskless(self, topic: str) -> bool | None:
        """Whether the topic is Dray's, or about to be: its `diskless.enable`. None for one that no cluster
        ever owned while Dray had it."""
        ...

    async def has_owner(self, topic: str) -> bool:
        """Whether another cluster still owns the topic, or parts of it."""
        ...

    async def switch(self, topic: str, *, validate_only: bool) -> None:
        """Ask for the switch of a topic. Raises `InvalidConfig`."""
        ...
