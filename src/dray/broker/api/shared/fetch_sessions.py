"""Fetch sessions (KIP-227), as Kafka has them: a consumer sends what changed of its partitions, and is
answered those of which something is new.

- A full request with epoch 0 may begin a session; one with any epoch ends the session that it names.
- An incremental request names the session and its next epoch. Whatever it names is added or changed, what it
  forgets is dropped, and a session without partitions is over.
- Answered are partitions with records, with an error, with another high watermark or start than was told
  last, or to be read elsewhere. They go to the end, so that all have their turn under a byte limit.
- There are at most 1,000 sessions. A new one takes the place of one that was not used for two minutes, or
  that is older than that and has fewer partitions; otherwise there is none, and the client sends all, as
  before. Unlike in Kafka the partitions of all sessions have a bound, and those of one have a request's.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final, TypeAlias
from uuid import UUID

from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

MOST_SESSIONS: Final = 1000  # Kafka's max.incremental.fetch.session.cache.slots
MOST_PARTITIONS: Final = 250_000  # some 400 bytes each
EVICTION_SECONDS: Final = 120.0

NO_SESSION: Final = 0
_INITIAL_EPOCH: Final = 0
_FINAL_EPOCH: Final = -1
_MOST_INT: Final = 2**31 - 1
_BY_ID: Final = 13

Place: TypeAlias = tuple[str, UUID, int]


class SessionRefused(Exception):
    """The request goes on with no session that there is, or not as it should."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


@dataclass(slots=True)
class _Cached:
    """One partition: as it was asked for last, and what was told of it last."""

    asked: FetchPartition
    high_watermark: int = -1
    start: int = -1

    def is_new(self, told: PartitionData) -> bool:
        """Must the client hear this? Then it counts as told."""
        new = bool(
            told.records
            or told.error_code
            or told.preferred_read_replica >= 0
            or (told.high_watermark, told.log_start_offset) != (self.high_watermark, self.start)
        )
        self.high_watermark = -1 if told.error_code else told.high_watermark
        self.start = told.log_start_offset
        return new


@dataclass(slots=True)
class _Session:
    identity: int
    by_id: bool
    created: float
    used: float
    partitions: dict[Place, _Cached] = field(default_factory=dict)
    size: int = 0  # of the partitions, as it is counted
    epoch: int = 1


class OpenedFetch:
    """A full request, and what becomes of it: a session, if there is to be one and there is room."""

    is_incremental = False

    def __init__(self, sessions: FetchSessions, request: FetchRequest, begins: bool, by_id: bool) -> None:
        self._sessions = sessions
        self._begins = begins
        self._by_id = by_id
        self.topics = request.topics

    def answered(self, response: FetchResponse, now: float, random: Random) -> FetchResponse:
        if self._begins:
            asked = [part for topic in self.topics for part in topic.partitions]
            told = [(_place(topic, part.partition_index), part) for topic, part in _parts(response)]
            partitions = {
                place: _Cached(each, part.high_watermark, part.log_start_offset)
                for each, (place, part) in zip(asked, told, strict=True)
            }
            response.session_id = self._sessions.create(partitions, self._by_id, now, random)
        return response

    def withheld(self, response: FetchResponse) -> None:
        """The client is above its quota, and gets no partition of the answer."""
        self._sessions.remove(response.session_id)
        response.session_id = NO_SESSION


class IncrementalFetch(OpenedFetch):
    """The request as if it named all partitions of its session."""

    is_incremental = True

    def __init__(self, sessions: FetchSessions, request: FetchRequest, session: _Session) -> None:
        super().__init__(sessions, request, False, session.by_id)
        self._session = session
        self._epoch = session.epoch
        self.topics = []
        for (name, topic_id, _), cached in session.partitions.items():
            last = self.topics[-1] if self.topics else None
            if last is None or (last.topic, last.topic_id) != (name, topic_id):
                last = FetchTopic(topic=name, topic_id=topic_id)
                self.topics.append(last)
            last.partitions.append(cached.asked)

    def answered(self, response: FetchResponse, now: float, random: Random) -> FetchResponse:
        del now, random
        session = self._session
        new: list[FetchableTopicResponse] = []
        if session.epoch != self._epoch:
            response.error_code = ErrorCode.INVALID_FETCH_SESSION_EPOCH
        else:
            for topic in response.responses:
                parts = [part for part in topic.partitions if self._is_new(topic, part)]
                if parts:
                    new.append(FetchableTopicResponse(topic.topic_id, topic.topic, parts))
        response.responses = new
        response.session_id = session.identity
        return response

    def withheld(self, response: FetchResponse) -> None:
        """The session goes on, and whatever was new still is."""
        for topic, part in _parts(response):
            cached = self._session.partitions.get(_place(topic, part.partition_index))
            if cached is not None:
                cached.high_watermark = -1

    def _is_new(self, topic: FetchableTopicResponse, part: PartitionData) -> bool:
        place = _place(topic, part.partition_index)
        partitions = self._session.partitions
        if place not in partitions or not partitions[place].is_new(part):
            return False
        partitions[place] = partitions.pop(place)
        return True


class FetchSessions:
    def __init__(self) -> None:
        self._sessions: OrderedDict[int, _Session] = OrderedDict()  # by their last use
        self.partitions = 0
        """Of all sessions together."""

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest, version: int, now: float, most: int) -> OpenedFetch:
        """Raises `SessionRefused`. `most`: partitions of one session."""
        by_id = version >= _BY_ID
        if request.session_epoch in (_INITIAL_EPOCH, _FINAL_EPOCH):
            self.remove(request.session_id)
            return OpenedFetch(self, request, request.session_epoch == _INITIAL_EPOCH, by_id)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise SessionRefused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != request.session_epoch:
            raise SessionRefused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            raise SessionRefused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self._update(session, request)
        if not session.partitions:
            self.remove(session.identity)
            return OpenedFetch(self, request, False, by_id)
        if session.size > most or self.partitions > MOST_PARTITIONS:
            self.remove(session.identity)
            raise SessionRefused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.epoch = session.epoch % _MOST_INT + 1
        session.used = now
        self._sessions.move_to_end(session.identity)
        return IncrementalFetch(self, request, session)

    def create(self, partitions: dict[Place, _Cached], by_id: bool, now: float, random: Random) -> int:
        """The identity of a new session, or `NO_SESSION` if there is no room for one."""
        size = len(partitions)
        if size > MOST_PARTITIONS:
            return NO_SESSION
        while len(self._sessions) >= MOST_SESSIONS or self.partitions + size > MOST_PARTITIONS:
            if not self._evict(size, now):
                return NO_SESSION
        identity = random.randrange(1, _MOST_INT)
        while identity in self._sessions:
            identity = random.randrange(1, _MOST_INT)
        self._sessions[identity] = _Session(identity, by_id, now, now, partitions, size)
        self.partitions += size
        return identity

    def _evict(self, size: int, now: float) -> bool:
        oldest = next(iter(self._sessions.values()))
        if now - oldest.used <= EVICTION_SECONDS:
            old = [each for each in self._sessions.values() if each.used - each.created > EVICTION_SECONDS]
            if not old:
                return False
            oldest = min(old, key=lambda each: (each.size, each.identity))
            if size <= oldest.size:
                return False
        self.remove(oldest.identity)
        return True

    def _update(self, session: _Session, request: FetchRequest) -> None:
        for topic in request.topics:
            for part in topic.partitions:
                place = _place(topic, part.partition)
                cached = session.partitions.get(place)
                if cached is None:
                    session.partitions[place] = _Cached(part)
                else:
                    cached.asked = part
        for gone in request.forgotten_topics_data:
            for index in gone.partitions:
                session.partitions.pop((gone.topic, gone.topic_id, index), None)
        self.partitions += len(session.partitions) - session.size
        session.size = len(session.partitions)

    def remove(self, identity: int) -> None:
        session = self._sessions.pop(identity, None)
        if session is not None:
            self.partitions -= session.size


def _place(topic: FetchTopic | FetchableTopicResponse, partition: int) -> Place:
    return topic.topic, topic.topic_id, partition


def _parts(response: FetchResponse) -> Iterator[tuple[FetchableTopicResponse, PartitionData]]:
    for topic in response.responses:
        for part in topic.partitions:
            yield topic, part
