"""Records that compress about as well as events in JSON do, made once and quickly."""

from __future__ import annotations

import random
from array import array

from dray.kafka.records import BytesColumn, Columns, encode

START_MS = 1_700_000_000_000


def text_columns(total: int, size: int, seed: int = 1) -> Columns:
    """So many bytes of records of `size` bytes each, keyed, a tenth of a millisecond apart."""
    count = max(1, total // size)
    chance = random.Random(seed)
    words = [chance.randbytes(4).hex().encode() for _ in range(400)]
    lines = b" ".join(chance.choices(words, k=count * size // 8))
    keys = b"".join([b"key-%08d" % number for number in range(count)])
    none = BytesColumn(bytes(4), b"", None)
    return Columns(
        row_count=count,
        header_count=0,
        offsets=array("q", range(count)).tobytes(),
        timestamps=array("q", [START_MS + number // 10 for number in range(count)]).tobytes(),
        producer_ids=array("q", [-1]).tobytes() * count,
        producer_epochs=array("i", [-1]).tobytes() * count,
        base_sequences=array("i", [-1]).tobytes() * count,
        attributes=bytes(4 * count),
        keys=BytesColumn(array("i", range(0, 12 * count + 1, 12)).tobytes(), keys, None),
        values=BytesColumn(array("i", range(0, size * count + 1, size)).tobytes(), lines, None),
        headers=bytes(4 * (count + 1)),
        header_keys=none,
        header_values=none,
    )


def text_batches(total: int, size: int, batch_bytes: int = 1 << 20) -> list[bytearray]:
    """The same as Kafka batches, as a producer sends them: offsets count from 0 in each."""
    columns = text_columns(total, size)
    per_batch = max(1, batch_bytes // (size + 24))
    batches = []
    for start in range(0, columns.row_count, per_batch):
        stop = min(start + per_batch, columns.row_count)
        batch = encode(columns, start=start, stop=stop, batch_bytes=1 << 30)
        batch[:8] = bytes(8)
        batches.append(batch)
    return batches
