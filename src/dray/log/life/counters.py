"""Numbers that are handed out once: stream ids and producer ids.

They are taken from a central counter in blocks, by compare-and-set. A block whose reply was lost is not used,
since it may be another's: numbers may be skipped, never repeated.
"""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import Final

from dray.base.runtime import Runtime
from dray.log.types import LogUnavailable
from dray.metadata.contract import ABSENT, Expectation, MetadataError, MetadataStore, Put
from dray.metadata.keys import CLUSTER_DOMAIN
from dray.metadata.update import update
from dray.metadata.values import ValueCorrupt, unseal

FORMAT: Final = 1

FIRST_PRODUCER_ID: Final = 1 << 48
_ID_SPACES: Final = 1 << 14

_VALUE = Struct(">Bq")


class IdCounter:
    def __init__(self, store: MetadataStore, runtime: Runtime, key: str, block: int) -> None:
        self._store = store
        self._runtime = runtime
        self._key = key
        self._block = block
        self._next = 0
        self._end = 0
        self._lock = asyncio.Lock()

    async def take(self, count: int = 1) -> list[int]:
        async with self._lock:
            taken: list[int] = []
            while len(taken) < count:
                if self._next == self._end:
                    self._next, self._end = await self._reserve(max(self._block, count - len(taken)))
                upto = min(self._end, self._next + count - len(taken))
                taken.extend(range(self._next, upto))
                self._next = upto
            return taken

    def _from(self, stored: int) -> int:
        return stored

    async def _reserve(self, block: int) -> tuple[int, int]:
        """Take the next block. One whose reply was lost may be another's: it is never used."""

        async def attempt() -> tuple[int, int] | None:
            record = await self._store.get(CLUSTER_DOMAIN, self._key)
            current = self._from(0 if record is None else decode(record.value))
            expect: Expectation = ABSENT if record is None else record.version
            put = Put(self._key, encode(current + block), expect)
            [outcome] = await self._store.write(CLUSTER_DOMAIN, [put])
            return (current, current + block) if outcome.applied else None

        try:
            return await update(self._runtime, attempt)
        except MetadataError as error:
            raise LogUnavailable(f"no numbers to be had from {self._key}: {error}") from error


class ProducerIds(IdCounter):
    """A cluster of Kafka begins at 0 and never comes to 2^48. Its producers write to topics that move here
    with the ids that they have, while others write with ids of ours: so those of both must never meet. From
    the first id on, and not from the first such topic on: producers keep their ids for as long as they live.
    Each cluster begins somewhere else, as the source may be one of Dray."""

    def _from(self, stored: int) -> int:
        if stored >= FIRST_PRODUCER_ID:
            return stored
        return FIRST_PRODUCER_ID * (1 + self._runtime.uuid().int % _ID_SPACES)


def id_space(producer_id: int) -> int:
    """Those of one cluster of Dray are alike in it; -1 for one that a Kafka gave."""
    return producer_id // FIRST_PRODUCER_ID if producer_id >= FIRST_PRODUCER_ID else -1


def encode(current: int) -> bytes:
    return _VALUE.pack(FORMAT, current)


def decode(value: bytes) -> int:
    unseal("a counter", value, FORMAT)
    if len(value) != _VALUE.size:
        raise ValueCorrupt("a counter", f"{len(value)} bytes")
    current: int = _VALUE.unpack(value)[1]
    if current < 0:
        raise ValueCorrupt("a counter", str(current))
    return current


async def jump(store: MetadataStore, runtime: Runtime, key: str, count: int) -> int:
    """Skip so many numbers: after a restore, those behind the counter may have been handed out already, also
    where the metadata is from before the first of them. The next number."""

    async def attempt() -> int | None:
        await store.barrier(CLUSTER_DOMAIN)
        record = await store.get(CLUSTER_DOMAIN, key)
        following = count + (0 if record is None else decode(record.value))
        expect: Expectation = ABSENT if record is None else record.version
        [outcome] = await store.write(CLUSTER_DOMAIN, [Put(key, encode(following), expect)])
        return following if outcome.applied else None

    return await update(runtime, attempt)
