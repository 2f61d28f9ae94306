"""What producers sent, what was answered, and what is stored: counted apart, batch by batch.

A `ProduceLedger` looks into what a `TcpProxy` passes on. It counts how often each batch went to a broker
whole, and how often a broker acknowledged it; `stored_batches` counts how often a topic holds it. Whatever
clients, networks and brokers go through, a batch is stored at most as often as it was sent, and at least as
often as it was acknowledged: who breaks the first rule has stored a batch twice on its own.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from dray.kafka.client import KafkaConnection
from dray.kafka.protocol.frames import parse_request_header, parse_response_header
from dray.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from dray.kafka.protocol.messages.produce import ProduceRequest, ProduceResponse
from dray.kafka.protocol.messages.schemas import ApiKey
from dray.kafka.records import decode
from tests.services.batches import joined

FETCH_VERSION = 12
# What a broker patches, base offset and leader epoch, stands before the checksum; the rest is as it was sent.
LENGTH_AT, LENGTH_ENDS, CHECKSUM_AT = 8, 12, 17


class SentBatch(NamedTuple):
    """A batch by its content, in its place."""

    topic: str
    partition: int
    content: bytes

    def values(self) -> list[bytes | None]:
        return [record.value for record in decode(_with_header(self.content)).records()]


def _with_header(content: bytes) -> bytes:
    length = len(content) + CHECKSUM_AT - LENGTH_ENDS
    return bytes(8) + length.to_bytes(4, "big") + bytes(4) + b"\2" + content


def split(topic: str, partition: int, data: memoryview) -> Iterator[SentBatch]:
    """The batches of a record set; one that is cut short at its end is left out, as consumers do."""
    position = 0
    while len(data) - position >= LENGTH_ENDS:
        length = int.from_bytes(data[position + LENGTH_AT : position + LENGTH_ENDS], "big")
        end = position + LENGTH_ENDS + length
        if end > len(data):
            return
        yield SentBatch(topic, partition, bytes(data[position + CHECKSUM_AT : end]))
        position = end


@dataclass
class ProduceLedger:
    """Of any number of connections, through any number of proxies: each of them asks for a `tap`."""

    sent: Counter[SentBatch] = field(default_factory=Counter)
    acknowledged: Counter[SentBatch] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def tap(self) -> ConnectionTap:
        return ConnectionTap(self)

    def note_sent(self, batches: list[SentBatch]) -> None:
        with self._lock:
            self.sent.update(batches)

    def note_acknowledged(self, batches: list[SentBatch]) -> None:
        with self._lock:
            self.acknowledged.update(batches)

    def times_sent(self) -> Counter[bytes | None]:
        """How often each record's value was sent whole, in whatever batch."""
        times: Counter[bytes | None] = Counter()
        for batch, count in self.sent.items():
            for value in batch.values():
                times[value] += count
        return times

    def check(self, stored: Counter[SentBatch]) -> None:
        invented = {batch: count for batch, count in stored.items() if count > self.sent[batch]}
        assert not invented, f"{len(invented)} batches are stored more often than they were sent"
        lost = {batch: count for batch, count in self.acknowledged.items() if count > stored[batch]}
        assert not lost, f"{len(lost)} batches were acknowledged more often than they are stored"


class ConnectionTap:
    """One connection: frames are put together again in both directions, and those of Produce are read."""

    def __init__(self, ledger: ProduceLedger) -> None:
        self._ledger = ledger
        self._requests = bytearray()
        self._responses = bytearray()
        self._unanswered: dict[int, tuple[int, list[SentBatch]]] = {}

    def towards_target(self, piece: bytes) -> None:
        self._requests += piece
        for frame in _frames(self._requests):
            if int.from_bytes(frame[:2], "big") == ApiKey.PRODUCE:
                self._read_request(memoryview(frame))

    def back(self, piece: bytes) -> None:
        self._responses += piece
        for frame in _frames(self._responses):
            asked = self._unanswered.pop(int.from_bytes(frame[:4], "big"), None)
            if asked is not None:
                self._read_response(memoryview(frame), *asked)

    def _read_request(self, frame: memoryview) -> None:
        header, position = parse_request_header(frame)
        request, _ = ProduceRequest.decode(frame, position, header.api_version)
        batches = [
            batch
            for topic in request.topic_data
            for part in topic.partition_data
            if part.records is not None
            for batch in split(topic.name, part.index, memoryview(part.records))
        ]
        self._ledger.note_sent(batches)
        if request.acks != 0:
            self._unanswered[header.correlation_id] = header.api_version, batches

    def _read_response(self, frame: memoryview, version: int, batches: list[SentBatch]) -> None:
        _, position = parse_response_header(frame, ApiKey.PRODUCE, version)
        response, _ = ProduceResponse.decode(frame, position, version)
        good = {
            (topic.name, part.index)
            for topic in response.responses
            for part in topic.partition_responses
            if part.error_code == 0
        }
        self._ledger.note_acknowledged([batch for batch in batches if (batch.topic, batch.partition) in good])


def _frames(buffer: bytearray) -> Iterator[bytes]:
    """The whole frames at the front of a buffer, without their size; they are taken out of it."""
    while len(buffer) >= 4:
        end = 4 + int.from_bytes(buffer[:4], "big")
        if len(buffer) < end:
            return
        frame = bytes(buffer[4:end])
        del buffer[:end]
        yield frame


async def stored_batches(port: int, topic: str, partitions: int) -> Counter[SentBatch]:
    """Every batch of a topic as a consumer gets it, from the first offset to the high watermark."""
    stored: Counter[SentBatch] = Counter()
    async with await KafkaConnection.connect("127.0.0.1", port) as connection:
        for partition in range(partitions):
            offset, high_watermark = 0, 1
            while offset < high_watermark:
                wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 22)
                request = FetchRequest(
                    max_wait_ms=500,
                    min_bytes=1,
                    max_bytes=1 << 22,
                    topics=[FetchTopic(topic=topic, partitions=[wanted])],
                )
                response = await connection.request(request, FETCH_VERSION)
                [answer] = response.responses[0].partitions
                assert answer.error_code == 0, answer
                high_watermark = answer.high_watermark
                records = memoryview(joined(answer.records or b""))
                for batch in split(topic, partition, records):
                    stored[batch] += 1
                    offset += int.from_bytes(batch.content[6:10], "big") + 1  # the last offset delta
    return stored
