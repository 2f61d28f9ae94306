"""Requests to compact a topic now: one key per topic, which compactors look for every few seconds.

A request says how far it is. It is a wish and no lock: jobs have their own key and versions, so two
compactors that both see to a request do no harm, and one that dies with it leaves it to the next.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Annotated, Final

import structlog
from pydantic import Field

from dray.base.runtime import Runtime
from dray.broker.topics.model import Topic
from dray.log.stream_store import Versioned
from dray.metadata import keys
from dray.metadata.contract import ABSENT, Delete, Expectation, MetadataStore, Put, StoredValue
from dray.metadata.update import update
from dray.metadata.values import HexUuid, JsonCodec, UnreadableValue

_log = structlog.get_logger(__name__)

REQUEST_FORMAT: Final = 1
MOST_REQUESTS: Final = 100
"""Topics that may wait at a time."""
LONGEST_REASON: Final = 300


class TooManyRequests(Exception):
    """So many topics wait to be compacted that one more is refused."""


class RequestState(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"

    @property
    def is_open(self) -> bool:
        return self in (RequestState.WAITING, RequestState.RUNNING)


@dataclass(frozen=True, slots=True)
class CompactionRequest:
    topic_id: Annotated[HexUuid, Field(alias="id")]
    state: RequestState
    asked_ms: int
    moved_ms: int
    partitions: int
    done: int
    """Partitions whose records of that time are in files."""
    owner: str
    why: str
    """Why it failed, or what keeps it."""


_CODEC: Final = JsonCodec(CompactionRequest, REQUEST_FORMAT)


def encode_request(request: CompactionRequest) -> bytes:
    return _CODEC.encode(request)


def decode_request(key: str, value: bytes) -> CompactionRequest:
    return _CODEC.decode(f"the request {key}", value)


class CompactionRequests:
    def __init__(self, store: MetadataStore, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime

    async def ask(self, topic: Topic) -> CompactionRequest:
        """The request that there is now: of this call, or an open one from before. Raises `TooManyRequests`,
        and `UnreadableValue` where another build wrote one that this one cannot read."""
        key = keys.compaction_request(topic.name)

        async def attempt() -> CompactionRequest | None:
            record = await self._store.get(keys.CLUSTER_DOMAIN, key)
            found = None if record is None else decode_request(key, record.value)
            if found is not None and found.state.is_open and found.topic_id == topic.topic_id:
                return found
            if record is None and len(await self._scan(MOST_REQUESTS)) >= MOST_REQUESTS:
                raise TooManyRequests(
                    f"{MOST_REQUESTS} topics have been asked for already: wait for a compactor to finish them"
                )
            now = self._runtime.wall_ms()
            wanted = CompactionRequest(
                topic.topic_id, RequestState.WAITING, now, now, len(topic.streams), 0, "", ""
            )
            return await self._put(key, wanted, ABSENT if record is None else record.version)

        return await update(self._runtime, attempt)

    async def of(self, topic: Topic) -> CompactionRequest | None:
        """None where there is none, and where the one that there is was for a topic of the same name that is
        gone, or cannot be read."""
        key = keys.compaction_request(topic.name)
        record = await self._store.get(keys.CLUSTER_DOMAIN, key)
        found = None if record is None else _readable(record)
        return found if found is not None and found.topic_id == topic.topic_id else None

    async def all(self) -> dict[str, Versioned[CompactionRequest]]:
        """By topic. A request that this build cannot read is left to one that can."""
        found: dict[str, Versioned[CompactionRequest]] = {}
        for record in await self._scan(2 * MOST_REQUESTS):
            name = keys.topic_of_compaction_request(record.key)
            request = None if name is None else _readable(record)
            if name is not None and request is not None:
                found[name] = Versioned(request, record.version)
        return found

    async def move(
        self, topic: str, request: Versioned[CompactionRequest], state: RequestState, **changed: object
    ) -> Versioned[CompactionRequest] | None:
        """None where another process came first."""
        to = replace(
            request.value,
            state=state,
            moved_ms=self._runtime.wall_ms(),
            **changed,  # type: ignore[arg-type]
        )
        to = replace(to, why=to.why[:LONGEST_REASON])
        put = Put(keys.compaction_request(topic), encode_request(to), request.version)
        [outcome] = await self._store.write(keys.CLUSTER_DOMAIN, [put])
        return Versioned(to, outcome.version) if outcome.applied else None

    async def forget(self, topic: str, request: Versioned[CompactionRequest]) -> None:
        delete = Delete(keys.compaction_request(topic), request.version)
        await self._store.write(keys.CLUSTER_DOMAIN, [delete])

    async def _put(
        self, key: str, request: CompactionRequest, expect: Expectation
    ) -> CompactionRequest | None:
        [outcome] = await self._store.write(keys.CLUSTER_DOMAIN, [Put(key, encode_request(request), expect)])
        return request if outcome.applied else None

    async def _scan(self, limit: int) -> list[StoredValue]:
        prefix = keys.COMPACTION_REQUESTS
        return await self._store.scan(keys.CLUSTER_DOMAIN, prefix, keys.prefix_end(prefix), limit)


def _readable(record: StoredValue) -> CompactionRequest | None:
    try:
        return decode_request(record.key, record.value)
    except UnreadableValue as error:
        _log.warning("a request to compact is left to another build", error=str(error))
        return None
