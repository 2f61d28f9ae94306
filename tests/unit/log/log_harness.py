"""A log on memory stores, and batches to append to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dray.log import Log, LogSettings
from dray.log.types import Appended, ReadRequest, ReadResult
from dray.metadata.memory import MemoryState, MemoryStore
from dray.objects.memory import MemoryBucket, MemoryObjects
from dray.records import twin, validate
from dray.runtime import SystemRuntime

DOMAINS = 2
EVERYTHING = 1 << 30
IMPATIENT = LogSettings(retry_seconds=0.001, settle_seconds=0.01)


def batch_bytes(
    values: Sequence[bytes],
    *,
    timestamps: Sequence[int] | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    codec: int = 0,
) -> bytearray:
    times = timestamps or [1_000] * len(values)
    records = [
        twin.Record(offset=place, timestamp=time, key=None, value=value, headers=())
        for place, (value, time) in enumerate(zip(values, times, strict=True))
    ]
    producer_id, epoch, sequence = producer
    return twin.encode(
        records, codec=codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )


def values_in(result: ReadResult) -> list[tuple[int, bytes]]:
    """Every record of a read, with its offset."""
    found = []
    for buffer in result.buffers:
        for _, records in twin.decode(buffer):
            found += [(record.offset, bytes(record.value or b"")) for record in records]
    return found


@dataclass
class World:
    """What outlives a broker."""

    runtime: SystemRuntime = field(default_factory=SystemRuntime)
    state: MemoryState = field(default_factory=MemoryState)
    bucket: MemoryBucket = field(default_factory=MemoryBucket)
    settings: LogSettings = field(
        default_factory=lambda: LogSettings(retry_seconds=0.001, settle_seconds=0.01)
    )

    def log(self) -> Log:
        store = MemoryStore(self.runtime, self.state)
        return Log(store, MemoryObjects(self.runtime, self.bucket), self.runtime, DOMAINS, self.settings)


async def append(log: Log, stream: int, data: bytearray, append_time_ms: int = -1) -> Appended:
    [batch] = validate(data, max_batch_bytes=EVERYTHING, max_decompressed_bytes=EVERYTHING)
    return await log.append(stream, batch, memoryview(data), append_time_ms)


async def read(log: Log, stream: int, offset: int, max_bytes: int = EVERYTHING) -> ReadResult:
    [result] = await log.fetch(
        [ReadRequest(stream, offset, max_bytes)], min_bytes=0, max_bytes=EVERYTHING, max_wait_ms=0
    )
    return result
