"""Whether a produced batch may be stored, and in what form: size, format, codec, time, keys.

Everything here is about one partition's records in one request, and nothing waits: what takes long
(decompressing a large batch, compressing one anew) is for the caller to run in a thread (`scheduling`).
Checks of the request as a whole are in `handler`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import field
from heapq import nsmallest
from typing import Final

from dray.base.runtime.lean_dataclasses import dataclass
from dray.broker.api.shared import RECORD_FAULTS
from dray.broker.topics import Topic, TopicSettings
from dray.kafka.protocol import Buffer, ErrorCode
from dray.kafka.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    TopicProduceData,
)
from dray.kafka.records import (
    Batch,
    Codec,
    RecordError,
    RecordFault,
    decode,
    recompress,
    stamp_append_time,
    validate,
)
from dray.kafka.records.header import LOG_APPEND_TIME
from dray.log.types import AppendResult

_NO_TIMESTAMP: Final = -1
_NO_OFFSET: Final = bytes(8)
_NO_KEY: Final = "Compacted topic cannot accept message without key."

# A table holds timestamps as microseconds in 64 bits: a record beyond could never be put into one.
LATEST_TIMESTAMP: Final = (2**63 - 1) // 1000
EARLIEST_TIMESTAMP: Final = -LATEST_TIMESTAMP

_MOST_RECORD_ERRORS: Final = 100
_LOOKED_AT_ONCE: Final = 32 << 10

_CODECS: Final[Mapping[str, Codec]] = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


class BatchRejected(Exception):
    """Why a partition's records are not stored, as its part of the response says it."""

    def __init__(
        self, code: ErrorCode, message: str, record_errors: list[BatchIndexAndErrorMessage] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.record_errors = record_errors or []


class TakesLong(Exception):
    """A batch that was to be judged at once is more work than it had seemed. Nothing was changed."""


@dataclass(frozen=True, slots=True)
class AcceptedBatch:
    """One batch, in the buffer that is to be stored."""

    batch: Batch
    buffer: memoryview
    append_time_ms: int = field(default=-1)


class ProducedPart:
    """The batch of a request for one partition, on its way to the log. Each step fills in its part."""

    topic: Topic | None = None
    stream: int
    """Set with the topic."""

    is_elsewhere = False
    """Whether another owner than this broker's log is asked to append it."""

    refused: BatchRejected | None = None
    accepted: AcceptedBatch | None = None
    appending: asyncio.Future[AppendResult] | None = None
    answer: PartitionProduceResponse | None = None
    """The other owner's."""

    def __init__(self, named: TopicProduceData, data: PartitionProduceData) -> None:
        self.named = named
        """The topic, as the request names it."""
        self.data = data


def accept(
    records: Buffer | None,
    settings: TopicSettings,
    version: int,
    now_ms: int,
    max_decompressed_bytes: int,
    *,
    at_once: bool = False,
) -> AcceptedBatch:
    """The batch as it is to be stored, or `BatchRejected`. `records` may be changed in place. With `at_once`,
    a batch that unfolds further than allowed, or whose many records have to be looked at, is `TakesLong`."""
    if not records:
        raise BatchRejected(
            ErrorCode.INVALID_RECORD,
            f"Produce requests with version {version} must have at least one record batch per partition",
        )
    records = memoryview(records)
    batch = _validated(records, settings, max_decompressed_bytes, at_once)
    if version < 7 and batch.codec == Codec.ZSTD:
        raise BatchRejected(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests with version {version} are not allowed to use ZStandard compression",
        )
    if batch.attributes & LOG_APPEND_TIME:
        raise BatchRejected(
            ErrorCode.INVALID_TIMESTAMP, "A producer must not set the timestamp type to LogAppendTime."
        )
    if records[:8] != _NO_OFFSET:
        raise BatchRejected(
            ErrorCode.INVALID_RECORD,
            "The base offset of a batch must be 0: its place in the log is not its to choose.",
        )
    _check_records(records, batch, settings, now_ms, max_decompressed_bytes, at_once)
    if settings.compression != "producer" and batch.codec != _CODECS[settings.compression]:
        codec, level = _CODECS[settings.compression], settings.compression_level
        anew = recompress(records, codec, level, max_decompressed_bytes=max_decompressed_bytes)
        records = memoryview(anew)
        batch = _validated(records, settings, max_decompressed_bytes, at_once)
    if not settings.stamps_append_time:
        return AcceptedBatch(batch, records)
    stamp_append_time(records, batch, now_ms)
    return AcceptedBatch(batch, records, now_ms)


def _validated(
    records: memoryview, settings: TopicSettings, max_decompressed_bytes: int, at_once: bool
) -> Batch:
    try:
        batches = validate(
            records,
            max_batch_bytes=settings.max_message_bytes,
            max_decompressed_bytes=max_decompressed_bytes,
        )
    except RecordError as error:
        if at_once and error.fault is RecordFault.TOO_LARGE:
            raise TakesLong from None
        raise BatchRejected(RECORD_FAULTS[error.fault], str(error)) from None
    if len(batches) != 1:
        raise BatchRejected(
            ErrorCode.INVALID_RECORD,
            "Produce requests are only allowed to contain exactly one record batch per partition",
        )
    return batches[0]


def _check_records(
    records: memoryview,
    batch: Batch,
    settings: TopicSettings,
    now_ms: int,
    max_decompressed_bytes: int,
    at_once: bool,
) -> None:
    """Refuses what the topic does not take of single records, and names those. They are looked at one by one
    only where there is a reason to: a timestamp out of range, or a topic that is compacted by their keys."""
    latest = min(now_ms + settings.timestamp_after_max_ms, LATEST_TIMESTAMP)
    earliest = max(now_ms - settings.timestamp_before_max_ms, EARLIEST_TIMESTAMP)
    in_time = settings.stamps_append_time or (
        batch.max_timestamp <= latest and batch.min_timestamp >= earliest
    )
    if in_time and not settings.compacts:
        return
    if at_once and batch.unfolded > _LOOKED_AT_ONCE:
        raise TakesLong
    columns = decode(records, max_decompressed_bytes=max_decompressed_bytes)
    wrong: set[int] = set()
    if settings.compacts:
        wrong.update(columns.keys.nulls(columns.row_count))
    timestamps = memoryview(columns.timestamps).cast("B").cast("q")
    late: set[int] = set()
    if not in_time:
        late.update(
            index
            for index, timestamp in enumerate(timestamps)
            if not earliest <= timestamp <= latest and timestamp != _NO_TIMESTAMP
        )
        late -= wrong
    if not wrong and not late:
        return
    first = [
        BatchIndexAndErrorMessage(
            index,
            f"Timestamp {timestamps[index]} of message with offset {index} is out of range. "
            f"The timestamp should be within [{earliest}, {latest}]"
            if index in late
            else _NO_KEY,
        )
        for index in nsmallest(_MOST_RECORD_ERRORS, wrong | late)
    ]
    raise BatchRejected(
        ErrorCode.INVALID_TIMESTAMP if late else ErrorCode.INVALID_RECORD,
        f"One or more records have been rejected due to {len(wrong) + len(late)} record errors in total; "
        f"the first: {first[0].batch_index_error_message}",
        first,
    )
