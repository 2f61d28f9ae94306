"""The brokers of a source, for requests that are forwarded: bounded connections, and who leads what.

A connection carries one request at a time, as a broker of Kafka works on one of each connection at a time:
requests of several clients that shared one would wait for each other. One whose answer did not come is ended,
not used again: what was asked of it may still happen, and would stand before the next request.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol
from uuid import UUID

from dray.base.runtime import Runtime
from dray.kafka.client.cluster import Address, ClusterView
from dray.kafka.client.connection import BrokerConnection
from dray.kafka.client.errors import ClientError
from dray.kafka.protocol import ZERO_UUID, ErrorCode
from dray.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

ASKED_SECONDS: Final = 5.0
"""How long one broker may take to say who leads, before the next is asked."""

LEARN_PAUSE_SECONDS: Final = 0.05


class ForwardingConnection(BrokerConnection, Protocol):
    @property
    def is_broken(self) -> bool: ...

    def abort(self) -> None:
        """Ends it at once, whatever is unsent."""
        ...


class ForwardingDial(Protocol):
    async def __call__(self, host: str, port: int, /) -> ForwardingConnection: ...


class SourceBrokers:
    def __init__(
        self, bootstrap: Sequence[Address], dial: ForwardingDial, runtime: Runtime, limits: ForwardingLimits
    ) -> None:
        self._bootstrap = list(bootstrap)
        self._dial = dial
        self._runtime = runtime
        self._limits = limits
        self._in_use = 0
        self._view = ClusterView()
        self._idle: dict[Address, list[tuple[ForwardingConnection, float]]] = {}
        self._turns: dict[Address, asyncio.Semaphore] = {}
        self._learning: dict[str, asyncio.Task[ClientError | None]] = {}
        self._learnt: set[str] = set()
        self._hidden: set[str] = set()
        self._last_learnt: dict[str, float] = {}
        self._is_closed = False

    @property
    def connections(self) -> int:
        """That are open, in use or not."""
        return self._in_use + sum(len(idle) for idle in self._idle.values())

    async def close(self) -> None:
        self._is_closed = True
        for connections in self._idle.values():
            for connection, _ in connections:
                connection.abort()
        self._idle.clear()

    # --- who leads

    async def leader(self, topic: str, partition: int) -> Address | None:
        """None where there is none now. Raises `ClientError` where no broker says."""
        if topic not in self._learnt or self._view.leader(topic, partition) is None:
            await self._learn(topic)
        return self._view.leader(topic, partition)

    def hides(self, topic: str) -> bool:
        """Whether the source does not show the topic to our user, who then has no right to it."""
        return topic in self._hidden

    def topic_id(self, topic: str) -> UUID:
        return self._view.topic_ids.get(topic, ZERO_UUID)

    def doubt(self, topic: str) -> None:
        """A broker answered that it does not lead, or did not answer: the next request asks first."""
        self._learnt.discard(topic)

    async def _learn(self, topic: str) -> None:
        """All that ask at the same time share one answer."""
        task = self._learning.get(topic)
        if task is None:
            task = self._learning[topic] = self._runtime.spawn(self._ask(topic), f"leaders of {topic}")
            task.add_done_callback(lambda _: self._learning.pop(topic, None))
        failure = await asyncio.shield(task)
        if failure is not None:
            raise failure

    async def _ask(self, topic: str) -> ClientError | None:
        """A failure is returned, not raised: it is the answer to all that share this task."""
        pause = self._last_learnt.get(topic, -LEARN_PAUSE_SECONDS) + LEARN_PAUSE_SECONDS
        if (wait := pause - self._runtime.monotonic()) > 0:
            await self._runtime.sleep(wait)
        self._last_learnt[topic] = self._runtime.monotonic()
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        failure = ClientError("no broker of the source is named")
        for address in dict.fromkeys((*self._view.brokers.values(), *self._bootstrap)):
            try:
                async with asyncio.timeout(ASKED_SECONDS), self.connection(address) as connection:
                    answer = await connection.request(request)
            except TimeoutError:
                failure = ClientError(f"{address[0]}:{address[1]} does not answer")
            except ClientError as error:
                failure = error
            else:
                self._view.learn(answer)
                self._learnt.add(topic)
                codes = {each.name: each.error_code for each in answer.topics}
                if codes.get(topic) == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    self._hidden.add(topic)
                else:
                    self._hidden.discard(topic)
                return None
        return failure

    # --- connections

    @asynccontextmanager
    async def connection(self, address: Address) -> AsyncIterator[ForwardingConnection]:
        """A connection for one request. If that does not end well, neither does the connection."""
        turn = self._turns.get(address)
        if turn is None:
            turn = self._turns[address] = asyncio.Semaphore(self._limits.connections)
        async with turn:
            connection = self._take(address) or await self._dial(*address)
            self._in_use += 1
            try:
                yield connection
            except BaseException:
                connection.abort()
                raise
            finally:
                self._in_use -= 1
            if self._is_closed:
                connection.abort()
            else:
                self._idle.setdefault(address, []).append((connection, self._runtime.monotonic()))

    def _take(self, address: Address) -> ForwardingConnection | None:
        """The one that was used last, so that those that are not needed grow old."""
        idle = self._idle.get(address)
        if not idle:
            return None
        oldest = self._runtime.monotonic() - self._limits.idle_seconds
        kept = []
        for connection, used in idle:
            if connection.is_broken or used < oldest:
                connection.abort()
            else:
                kept.append((connection, used))
        self._idle[address] = kept
        return kept.pop()[0] if kept else None


# --- limits of forwarding, and its metrics


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
    """The outcome of a batch."""

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
