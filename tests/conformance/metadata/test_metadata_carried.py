"""A log that carries small appends, on every engine: read by another client, packed, and read again."""

from __future__ import annotations

import asyncio

from tests.services import room_settings
from tests.services.room_settings import ETCD
from tests.simulation.log.players import batch_of

from dray.base.runtime import SystemRuntime
from dray.kafka.records import decode, validate
from dray.log import Log
from dray.log.stream_store import StreamStore
from dray.log.types import ReadRequest
from dray.metadata import keys
from dray.metadata.contract import MetadataStore
from dray.objects.memory import MemoryBucket, MemoryObjects

DOMAINS = 1
MANY = 1 << 30
SETTINGS = room_settings.log(
    carry=ETCD, pack_look_seconds=1e9, settle_seconds=0.01, orphan_ttl=3600.0, tail_cache_bytes=0
)


async def read(log: Log, stream: int) -> list[bytes]:
    found: list[bytes] = []
    while True:
        [result] = await log.fetch(
            [ReadRequest(stream, len(found), MANY)], min_bytes=0, max_bytes=MANY, max_wait_ms=0
        )
        if result.error is not None:
            raise result.error
        if not result.buffers:
            return found
        for buffer in result.buffers:
            found += [bytes(record.value or b"") for record in decode(buffer).records()]


async def test_small_appends_are_carried_packed_and_read(
    runtime: SystemRuntime, store: MetadataStore, other: MetadataStore
) -> None:
    bucket = MemoryBucket()
    log = Log(store, MemoryObjects(runtime, bucket), runtime, DOMAINS, SETTINGS)
    log.carry(True)
    streams = await log.create_streams(3)
    values = [b"%d" % number * 300 for number in range(6)]
    for value in values:
        appends = []
        for stream in streams:
            data = batch_of([value])
            [batch] = validate(data, max_batch_bytes=MANY, max_decompressed_bytes=MANY)
            appends.append(log.append(stream, batch, memoryview(data)))
        await asyncio.gather(*appends)
    assert bucket.objects == {}
    await log.stop()
    reader = Log(other, MemoryObjects(runtime, bucket), runtime, DOMAINS, SETTINGS)
    for stream in streams:
        assert await read(reader, stream) == values
    for rounds in reader._packing:  # it does not carry: it packs all there is
        await rounds.run()
    assert len(bucket.objects) == 1
    view = await StreamStore(other, DOMAINS, 1).view(streams[0])
    assert view is not None
    assert [entry.value.is_referenced for entry in view.entries] == [True]
    last = Log(store, MemoryObjects(runtime, bucket), runtime, DOMAINS, SETTINGS)
    for stream in streams:
        assert await read(last, stream) == values
    start, end = keys.STAGING, keys.prefix_end(keys.STAGING)
    assert await store.scan(0, start, end) == []
