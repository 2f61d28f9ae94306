"""A log on scripted stores, and batches to append to it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.services import room_settings
from tests.services.attached_log import CACHE_BYTES, AttachedLog
from tests.simulation.scripted import ScriptedObjects, ScriptedStore, bucket_is_ours

from dray.kafka.records import Record, twin, validate
from dray.log import Log, LogObserver, LogSettings
from dray.log.life.deletions import MayDelete
from dray.log.types import AppendResult, LogUnavailable, ReadRequest, ReadResult
from dray.metadata.contract import Limits
from dray.metadata.memory import MemoryState
from dray.migration.entries.segments import ForeignStore
from dray.objects.memory import MemoryBucket
from dray_simulation.kernel.loop import hear
from dray_simulation.kernel.runtime import SimulatedRuntime

DOMAINS = 2
EVERYTHING = 1 << 30
QUICK = room_settings.log(retry_seconds=0.001, settle_seconds=0.01)


def batch_bytes(
    values: Sequence[bytes],
    *,
    timestamps: Sequence[int] | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    codec: int = 0,
) -> bytearray:
    times = timestamps or [1_000] * len(values)
    records = [
        Record(offset=place, timestamp=time, key=None, value=value, headers=())
        for place, (value, time) in enumerate(zip(values, times, strict=True))
    ]
    producer_id, epoch, sequence = producer
    return twin.encode(
        records, codec=codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )


def values_in(result: ReadResult) -> list[tuple[int, bytes]]:
    """Every record of a read, with its offset."""
    if result.error is not None:
        raise result.error
    found = []
    for buffer in result.buffers:
        for _, records in twin.decode(buffer):
            found += [(record.offset, bytes(record.value or b"")) for record in records]
    return found


@dataclass
class World:
    """What outlives a broker. `store` and `objects` are the clients of the broker made last."""

    settings: LogSettings = QUICK
    limits: Limits | None = None
    runtime: SimulatedRuntime = field(default_factory=lambda: SimulatedRuntime(1))
    state: MemoryState = field(default_factory=MemoryState)
    bucket: MemoryBucket = field(default_factory=MemoryBucket)
    may_delete: MayDelete = bucket_is_ours
    store: ScriptedStore = field(init=False)
    objects: ScriptedObjects = field(init=False)

    def log(
        self, observer: LogObserver | None = None, foreign_cache_bytes: int = CACHE_BYTES, **settings: Any
    ) -> AttachedLog:
        self.store = ScriptedStore(self.runtime, self.state, self.limits)
        self.objects = ScriptedObjects(self.runtime, self.bucket)
        changed = replace(self.settings, **settings)
        return AttachedLog(
            self.store,
            self.objects,
            self.runtime,
            DOMAINS,
            changed,
            observer,
            may_delete=self.may_delete,
            stores=self.foreign(),
            cache_bytes=foreign_cache_bytes,
        )

    def foreign(self) -> dict[str, ForeignStore]:
        """The stores of other systems."""
        return {}

    def keys(self, prefix: str) -> list[str]:
        found: list[str] = []
        for domain in range(DOMAINS):
            found += self.state.domain(domain, self.runtime.monotonic()).keys
        return [key for key in found if key.startswith(prefix)]

    def corrupt(self, path: str, position: int) -> None:
        """Flip one bit of an object that is there."""
        data = bytearray(self.bucket.objects[path].data)
        data[position] ^= 0x10
        self.bucket.put(path, bytes(data), 0)


def start_append(
    log: Log, stream: int, data: bytearray, append_time_ms: int = -1
) -> asyncio.Future[AppendResult]:
    own = bytearray(data)
    [batch] = validate(own, max_batch_bytes=EVERYTHING, max_decompressed_bytes=EVERYTHING)
    answer = log.append(stream, batch, memoryview(own), append_time_ms)
    answer.add_done_callback(hear)  # some tests begin appends that fail, and ask for something else
    return answer


async def append(log: Log, stream: int, data: bytearray, append_time_ms: int = -1) -> AppendResult:
    return await start_append(log, stream, data, append_time_ms)


async def read(log: Log, stream: int, offset: int, max_bytes: int = EVERYTHING) -> ReadResult:
    [result] = await log.fetch(
        [ReadRequest(stream, offset, max_bytes)], min_bytes=0, max_bytes=EVERYTHING, max_wait_ms=0
    )
    return result


async def read_patiently(log: Log, stream: int, offset: int) -> ReadResult:
    """As a client that asks again while it is told to wait."""
    for _ in range(100):
        result = await read(log, stream, offset)
        if not isinstance(result.error, LogUnavailable):
            return result
        await asyncio.sleep(0.5)
    raise AssertionError(f"told to wait for ever: {result.error}")


async def soon(coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Start something, and let it run until it waits for something that does not come by itself."""
    task = asyncio.ensure_future(coroutine)
    await asyncio.wait([task], timeout=0.001)
    return task
