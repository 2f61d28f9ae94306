"""Numbers that are handed out once: stream ids and producer ids.

They are taken from a central counter in blocks, by compare-and-set. A block whose reply was lost is
not used, since another may have got the same one's successor: numbers may be skipped, never repeated.
"""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import Final

from dray.log.types import LogUnavailable
from dray.metadata.contract import ABSENT, Ambiguous, Expectation, MetadataError, MetadataStore, Put
from dray.metadata.keys import CLUSTER_DOMAIN
from dray.metadata.values import ValueCorrupt, unseal

FORMAT: Final = 1

_VALUE = Struct(">Bq")
_TRIES: Final = 64


class IdCounter:
    def __init__(self, store: MetadataStore, key: str, block: int) -> None:
        self._store = store
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

    async def _reserve(self, block: int) -> tuple[int, int]:
        for _ in range(_TRIES):
            try:
                record = await self._store.get(CLUSTER_DOMAIN, self._key)
                current = 0
                if record is not None:
                    current = decode(record.value)
                expect: Expectation = ABSENT if record is None else record.version
                put = Put(self._key, encode(current + block), expect)
                [outcome] = await self._store.write(CLUSTER_DOMAIN, [put])
            except Ambiguous:
                continue  # this block may be ours or not: it is nobody's
            except MetadataError as error:
                raise LogUnavailable(f"no numbers to be had from {self._key}: {error}") from error
            if outcome.applied:
                return current, current + block
        raise LogUnavailable(f"no numbers to be had from {self._key}: too many others ask")


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
