"""The batch that leads a consumer over offsets at the end of an answer that have no record any more.

Without it the position of a consumer would stay below the end of the log for ever. It is a control batch:
consumers pass over those without a record, and librdkafka takes an answer of nothing but empty data batches
for one that was cut off, and asks for twice as many bytes each time.
"""

from __future__ import annotations

from dray.kafka.records._core import crc32c
from dray.kafka.records.header import CONTROL, MAGIC, NO_PRODUCER, OPENING, PREFIX, REST

_NO_TIMESTAMP = -1


def filler(last_offset: int, leader_epoch: int) -> bytes:
    """An empty batch that ends at `last_offset`: it begins there too, since the offsets of a batch are few
    and those of a hole may be many."""
    rest = REST.pack(CONTROL, 0, _NO_TIMESTAMP, _NO_TIMESTAMP, NO_PRODUCER, -1, -1, 0)
    length = OPENING.size + len(rest) - PREFIX.size
    return OPENING.pack(last_offset, length, leader_epoch, MAGIC, crc32c(rest)) + rest
