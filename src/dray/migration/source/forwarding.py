"""Produce requests for a topic that its source still owns: sent on to the leaders there, answered as they
answer.

    the link says       what is done with a batch
    ----------------    -----------------------------------------------------------------------------
    mirroring           sent to its leader at the source
    pending             the same, until the fence refuses it; then it waits. At a source whose producers
                        are stopped by hand nothing refuses: there it waits at once
    (decided)           given back: the caller appends it here

- The caller has one request of each client connection here at a time: so the batches of a producer keep their
  order, whatever is tried again.
- A batch of an idempotent producer is sent again, within the request's timeout, where its leader moved or the
  answer was lost: the source finds it in what it remembers of the producer, and so does Dray behind the
  boundary, as it has mirrored that. A batch without a producer id is not: its client decides.
- An acknowledgement counts while the link is known from shortly before. Else the boundary is asked for: what
  the source took beyond it belongs to no log, and is appended here instead.
- What a request holds is counted, and above a bound refused at once: clients try again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeAlias
from uuid import UUID

import structlog

from dray.base.runtime import Runtime, gather_some
from dray.kafka.client.cluster import Address
from dray.kafka.client.errors import AuthenticationFailed, ClientError
from dray.kafka.protocol import Buffer, ErrorCode
from dray.kafka.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from dray.kafka.records import HEADER_SIZE, NO_PRODUCER, read_header
from dray.migration.source.shared_looks import NotAnswered, SharedLooks
from dray.migration.source.source_brokers import (
    ForwardingLimits,
    ForwardingObserver,
    ForwardOutcome,
    SourceBrokers,
)

_log = structlog.get_logger(__name__)

KNOWN_SECONDS: Final = 1.0
"""How old a link may be when a request is sent by it."""

COUNTS_SECONDS: Final = 5.0
"""How old a link may be when the source's answer to it counts. A switch without a fence that answers watches
the source's end for twice as long."""

LIFTED_SECONDS: Final = 2.0
"""For so long a source may still refuse after its fence was lifted."""

REFUSED_SECONDS: Final = 0.1
"""For so long every refusal is asked about again: a broker that has just come may have missed a switch whose
fence is only being lifted."""

PAUSE_SECONDS: Final = 0.02

_FENCES: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
_MOVED: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE})
_DOUBTED: Final = _MOVED | {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.KAFKA_STORAGE_ERROR,
}
_ANSWERED: Final = 1
"""acks of a request whose client asks for no answer: without one, nothing would show that a batch was refused
by a fence, and it would be lost at every switch."""

Answer: TypeAlias = PartitionProduceResponse | tuple[ErrorCode, str] | None
"""The source's, or why there is none; None: the batch is for Dray to append."""


class Link(NamedTuple):
    """A topic that its source owns, as its migration says it."""

    upstream: str  # its name in the config
    is_pending: bool
    is_fenced_by_hand: bool = False


class ProducedBatch(Protocol):
    @property
    def topic(self) -> str: ...
    @property
    def topic_id(self) -> UUID: ...
    @property
    def partition(self) -> int: ...
    @property
    def stream(self) -> int: ...
    @property
    def records(self) -> Buffer: ...


class _NotSent(Exception):
    """Nothing of the request left this broker."""


class LinkedLogs(Protocol):
    """The links in Dray's own stores. Both answers are read behind a barrier, and raise `NotAnswered`."""

    async def link(self, topic: str) -> Link | None:
        """None where no source owns the topic."""
        ...

    async def boundary(self, stream: int) -> int | None:
        """None while the source owns the log."""
        ...


@dataclass(slots=True, eq=False)
class _Pending:
    batch: ProducedBatch
    is_repeatable: bool
    is_done: bool = False
    answer: Answer = None
    asked: float = 0.0  # when the link said that it may be sent
    refused_at: float | None = None  # for the first time
    is_refused: bool = False  # by a fence
    acknowledged: PartitionProduceResponse | None = None  # and it is not yet known whether that counts
    why: str = "the source did not answer"

    def finish(self, answer: Answer) -> None:
        self.is_done, self.answer = True, answer


class ProduceForwarder:
    """One per broker. `clusters`: the sources that its config names."""

    def __init__(
        self,
        clusters: Mapping[str, SourceBrokers],
        logs: LinkedLogs,
        runtime: Runtime,
        limits: ForwardingLimits,
        observer: ForwardingObserver,
    ) -> None:
        self._clusters = clusters
        self._runtime = runtime
        self._limits = limits
        self._observer = observer
        self._links = SharedLooks(logs.link, runtime, PAUSE_SECONDS, "link of a topic")
        self._boundaries = SharedLooks(logs.boundary, runtime, PAUSE_SECONDS, "boundary of a stream")
        self.ours: set[int] = set()
        """Streams that take appends here: asked for every batch of a topic that began elsewhere. B0 never
        changes, so what is in it stays."""
        self._classic: set[int] = set()
        self._pending_seen: dict[str, float] = {}
        self.held_bytes = 0
        self.held_requests = 0

    async def stop(self) -> None:
        for cluster in self._clusters.values():
            await cluster.close()

    def owns(self, stream: int) -> bool:
        """Whether a source may own the stream, of a topic that began elsewhere."""
        return stream not in self.ours

    async def append(
        self, batches: Sequence[ProducedBatch], *, acks: int, seconds: float
    ) -> tuple[Sequence[Answer], int]:
        """The answer for each batch, and how long the source wants the client to wait, in milliseconds.
        May be cancelled."""
        size = sum(len(batch.records) for batch in batches)
        if self.held_bytes and self.held_bytes + size > self._limits.most_bytes:
            for _ in batches:
                self._observer.finished(ForwardOutcome.BUSY)
            busy = ErrorCode.REQUEST_TIMED_OUT, "This broker holds too much for the source: try again."
            return [busy] * len(batches), 0
        self.held_bytes += size
        self.held_requests += 1
        try:
            pending = [_Pending(each, _is_repeatable(each.records)) for each in batches]
            answers, throttle_ms = await self._forward(pending, acks, seconds)
        finally:
            self.held_bytes -= size
            self.held_requests -= 1
        for answer in answers:
            self._observer.finished(_outcome(answer))
        return answers, throttle_ms

    async def _forward(
        self, all_of_it: Sequence[_Pending], acks: int, seconds: float
    ) -> tuple[Sequence[Answer], int]:
        deadline = self._runtime.monotonic() + min(seconds, self._limits.longest_seconds)
        throttle_ms = 0
        waiting = all_of_it
        while True:
            left = deadline - self._runtime.monotonic()
            if left <= 0:
                break
            try:
                async with asyncio.timeout(left):
                    throttle_ms = max(throttle_ms, await self._round(waiting, acks, deadline))
            except TimeoutError:
                break
            waiting = [each for each in waiting if not each.is_done]
            if not waiting:
                return [each.answer for each in all_of_it], throttle_ms
            await self._runtime.sleep(min(PAUSE_SECONDS, max(0.0, deadline - self._runtime.monotonic())))
        for each in waiting:
            if not each.is_done:
                each.finish((ErrorCode.REQUEST_TIMED_OUT, f"{each.why}: try again."))
        return [each.answer for each in all_of_it], throttle_ms

    # --- one round: who takes each batch, and what becomes of it there

    async def _round(self, waiting: Sequence[_Pending], acks: int, deadline: float) -> int:
        """How long the source wants the client to wait."""
        by_leader: dict[tuple[str, Address], list[_Pending]] = {}
        for each in waiting:
            try:
                place = await self._place(each)
            except AuthenticationFailed as failure:
                _log.warning("the source does not take what is forwarded", error=str(failure))
                each.finish((ErrorCode.NOT_LEADER_OR_FOLLOWER, str(failure)))
            except (NotAnswered, ClientError) as failure:
                each.why = str(failure)
            else:
                if place is not None:
                    by_leader.setdefault(place, []).append(each)
        sent = await gather_some(
            self._send(upstream, leader, batches, acks, deadline)
            for (upstream, leader), batches in by_leader.items()
        )
        return max(sent, default=0)

    async def _place(self, each: _Pending) -> tuple[str, Address] | None:
        """The source's name and the leader there. None where the batch has to wait, or is done."""
        batch = each.batch
        is_doubtful = each.is_refused or each.acknowledged is not None
        looked = await (
            self._links.fresh(batch.topic) if is_doubtful else self._links.within(batch.topic, KNOWN_SECONDS)
        )
        link = looked.value
        if link is not None and link.is_pending:
            self._pending_seen[batch.topic] = self._runtime.monotonic()
        if link is None or link.is_pending or batch.stream not in self._classic:
            boundary = (await self._boundaries.fresh(batch.stream)).value
            if boundary is not None:
                self._is_decided(each, boundary)
                return None
            self._classic.add(batch.stream)
        if link is None:
            unknown = ErrorCode.NOT_LEADER_OR_FOLLOWER, "No source takes the appends of this topic now."
            each.finish(each.acknowledged or unknown)
            return None
        waits_for_boundary = link.is_pending and (each.is_refused or link.is_fenced_by_hand)
        if waits_for_boundary:
            each.why = "the topic is being switched"
            return None
        if each.acknowledged is not None:
            each.finish(each.acknowledged)
            return None
        cluster = self._clusters.get(link.upstream)
        if cluster is None:
            message = f"This broker does not know the source: add {link.upstream} to upstream.clusters."
            each.finish((ErrorCode.NOT_LEADER_OR_FOLLOWER, message))
            return None
        leader = await cluster.leader(batch.topic, batch.partition)
        if leader is None:
            cluster.doubt(batch.topic)
            if cluster.hides(batch.topic):
                await self._weigh(cluster, each, _not_allowed(batch.partition))
                return None
            each.why = "the partition has no leader at the source"
            return None
        each.asked = looked.asked
        return link.upstream, leader

    def _is_decided(self, each: _Pending, boundary: int) -> None:
        """Dray owns the log. A batch that the source took before the boundary is mirrored."""
        self.ours.add(each.batch.stream)
        self._classic.discard(each.batch.stream)
        found = each.acknowledged
        each.finish(found if found is not None and found.base_offset < boundary else None)

    async def _send(
        self,
        upstream: str,
        leader: Address,
        batches: Sequence[_Pending],
        acks: int,
        deadline: float,
    ) -> int:
        """How long the source wants the client to wait."""
        cluster = self._clusters[upstream]
        began = self._runtime.monotonic()
        self._observer.sent(upstream, sum(len(each.batch.records) for each in batches))
        try:
            response = await self._ask(cluster, leader, batches, acks, deadline)
        except (_NotSent, ClientError, TimeoutError) as failure:
            self._observer.unanswered(upstream)
            for each in batches:
                cluster.doubt(each.batch.topic)
                each.why = str(failure) or "the source did not answer"
                if not each.is_repeatable and not isinstance(failure, _NotSent):
                    each.finish((ErrorCode.REQUEST_TIMED_OUT, f"{each.why}: try again."))
            return 0
        self._observer.answered(upstream, self._runtime.monotonic() - began)
        names = {each.batch.topic_id: each.batch.topic for each in batches}
        answers = {
            (topic.name or names.get(topic.topic_id), answer.index): answer
            for topic in response.responses
            for answer in topic.partition_responses
        }
        for each in batches:
            answer = answers.get((each.batch.topic, each.batch.partition))
            if answer is None:
                each.finish((ErrorCode.UNKNOWN_SERVER_ERROR, "The source left this partition out."))
            else:
                await self._weigh(cluster, each, answer)
        return response.throttle_time_ms

    async def _ask(
        self,
        cluster: SourceBrokers,
        leader: Address,
        batches: Sequence[_Pending],
        acks: int,
        deadline: float,
    ) -> ProduceResponse:
        left = deadline - self._runtime.monotonic()
        if all(each.is_repeatable for each in batches):
            left = min(left, self._limits.attempt_seconds)
        topics: dict[str, TopicProduceData] = {}
        for each in batches:
            data = PartitionProduceData(index=each.batch.partition, records=each.batch.records)
            topic = topics.setdefault(
                each.batch.topic, TopicProduceData(each.batch.topic_id, each.batch.topic)
            )
            topic.partition_data.append(data)
        request = ProduceRequest(
            acks=acks or _ANSWERED, timeout_ms=max(1, int(left * 1000)), topic_data=list(topics.values())
        )
        is_sent = False
        try:
            async with asyncio.timeout(left), cluster.connection(leader) as connection:
                is_sent = True
                return await connection.request(request)
        except (ClientError, TimeoutError) as failure:
            if is_sent:
                raise
            raise _NotSent(str(failure)) from failure

    async def _weigh(self, cluster: SourceBrokers, each: _Pending, answer: PartitionProduceResponse) -> None:
        code = answer.error_code
        if code in _FENCES and await self._may_be_a_fence(each):
            each.is_refused = True
            return
        if code in _DOUBTED:
            cluster.doubt(each.batch.topic)
        if code in _MOVED and each.is_repeatable:
            each.why = "the partition's leader at the source has moved"
            return
        # Not its word on who leads: clients must not go there by what this broker says.
        passed_on = PartitionProduceResponse(
            index=answer.index,
            error_code=code,
            base_offset=answer.base_offset,
            log_append_time_ms=answer.log_append_time_ms,
            log_start_offset=answer.log_start_offset,
            record_errors=answer.record_errors,
            error_message=answer.error_message,
        )
        if code == ErrorCode.NONE and self._runtime.monotonic() - each.asked > COUNTS_SECONDS:
            each.acknowledged = passed_on
        else:
            each.finish(passed_on)

    async def _may_be_a_fence(self, each: _Pending) -> bool:
        """Whether a refusal may be that of a switch. Else it is what it says: too large, or not allowed."""
        topic = each.batch.topic
        if each.refused_at is None:
            each.refused_at = self._runtime.monotonic()
        try:
            link = (await self._links.fresh(topic)).value
        except NotAnswered:
            return True  # the batch waits, and it is asked again
        now = self._runtime.monotonic()
        if link is not None and link.is_pending:
            self._pending_seen[topic] = now
        return (
            link is None
            or now - self._pending_seen.get(topic, -LIFTED_SECONDS) < LIFTED_SECONDS
            or now - each.refused_at < REFUSED_SECONDS
        )


def _not_allowed(partition: int) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=partition,
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        error_message="Dray's brokers may not write to the topic at its source: their user there needs "
        "WRITE.",
    )


def _is_repeatable(records: Buffer) -> bool:
    """Whether a log that has the batch already would find it."""
    return len(records) >= HEADER_SIZE and read_header(records).producer_id != NO_PRODUCER


def _outcome(answer: Answer) -> ForwardOutcome:
    if answer is None:
        return ForwardOutcome.HERE
    if not isinstance(answer, PartitionProduceResponse):
        return ForwardOutcome.FAILED
    return ForwardOutcome.AT_SOURCE if answer.error_code == ErrorCode.NONE else ForwardOutcome.REFUSED
