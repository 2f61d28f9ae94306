"""Topics that a Kafka cluster still owns, as the handlers see them: what is sent on, and how they change
hands. `daemon/linked_topics.py` brings both from the rooms that know."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple, Protocol, TypeAlias
from uuid import UUID

from dray.protocol import Buffer, ErrorCode
from dray.protocol.messages.produce import PartitionProduceResponse

ForwardedAnswer: TypeAlias = PartitionProduceResponse | tuple[ErrorCode, str] | None
"""The source's, or why there is none; None: the batch is to be appended here."""


class ForwardedBatch(NamedTuple):
    topic: str
    topic_id: UUID
    partition: int
    stream: int
    records: Buffer


class Forwarder(Protocol):
    @property
    def ours(self) -> Container[int]:
        """Streams that take appends here, of topics that began elsewhere."""
        ...

    async def forward(
        self, batches: Sequence[ForwardedBatch], *, acks: int, seconds: float
    ) -> tuple[Sequence[ForwardedAnswer], int]:
        """The answer for each batch, and how long the client is to wait, in milliseconds."""
        ...


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
