"""WAL objects and the index entries that list their batches, made by hand, for executors to read."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID, uuid4

from dray.kafka.records import Codec, stamp_append_time, twin, validate
from dray.kafka.records.columns import Record
from dray.log.entries import BatchReference, IndexEntry, pack_batches
from dray.log.jobs.values import WrittenFile
from dray.objects.contract import ObjectStore
from dray.tables.compaction.model import Unit
from dray.tables.compaction.paths import unit_prefix

START = 1_700_000_000_000
TOPIC_ID = UUID(int=7)
LIMITS = {"max_batch_bytes": 1 << 30, "max_decompressed_bytes": 1 << 30}


def kafka_batch(
    records: Sequence[Record],
    codec: int = Codec.NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
    append_time: int | None = None,
) -> bytearray:
    """As a producer sends it: its offsets count from 0."""
    first = records[0].offset
    sent = [record._replace(offset=record.offset - first) for record in records]
    data = twin.encode(
        sent, codec=codec, producer_id=producer[0], producer_epoch=producer[1], base_sequence=producer[2]
    )
    if append_time is not None:
        [batch] = validate(data, **LIMITS)
        stamp_append_time(data, batch, append_time)
    return data


async def wal_entry(
    objects: ObjectStore, start: int, batches: Sequence[bytes | bytearray], refused: Sequence[int] = ()
) -> IndexEntry:
    """An object of batches, each behind its length, of which some are not in the index."""
    data = bytearray(b"header of the object")
    references = []
    offset = start
    for place, batch in enumerate(batches):
        data += len(batch).to_bytes(4, "big")
        [known] = validate(batch, **LIMITS)
        if place not in refused:
            references.append(
                BatchReference(
                    len(data),
                    len(batch),
                    known.record_count,
                    known.attributes,
                    known.min_timestamp,
                    known.max_timestamp,
                    known.producer_id,
                    known.producer_epoch,
                    known.base_sequence,
                )
            )
            offset += known.record_count
        data += batch
    wal_id = uuid4()
    path = f"wal/v1/{wal_id}.wo"
    await objects.put(path, [bytes(data)])
    times = [time for reference in references for time in (reference.min_timestamp, reference.max_timestamp)]
    return IndexEntry(
        start,
        offset,
        len(data),
        START,
        min(times),
        max(times),
        max(times),
        start,
        wal_id,
        path,
        pack_batches(references),
    )


def unit_of(entries: Sequence[IndexEntry], stream: int = 5, job: int = 1, partition: int = 3) -> Unit:
    return Unit(
        topic="orders",
        topic_id=TOPIC_ID,
        partition=partition,
        stream=stream,
        job=job,
        entries=tuple(entry.encode() for entry in entries),
        start=entries[0].start,
        end=entries[-1].end,
        prefix=unit_prefix("orders", TOPIC_ID, partition, stream),
    )


def parquet_entry(inputs: Sequence[IndexEntry], written: WrittenFile) -> IndexEntry:
    return IndexEntry.parquet(
        inputs, written.parquet_id, written.path, written.file_size, written.footer_length, written.row_groups
    )


def records(start: int, count: int, size: int = 20, time: int = START) -> list[Record]:
    return [
        Record(
            offset,
            time + offset,
            None if offset % 5 == 0 else b"key %d" % offset,
            None if offset % 7 == 0 else b"%d" % offset * (size // len(b"%d" % offset)),
            [("a", b"1"), ("a", None), ("b", b"%d" % offset)] if offset % 3 == 0 else [],
        )
        for offset in range(start, start + count)
    ]
