"""A topic that is compacted by key, and the oracle of what it promises."""

from __future__ import annotations

from dataclasses import dataclass, field

from dray.broker.topics.model import Topic
from dray.kafka.records import Record, decode, read_header, twin, validate
from dray.kafka.records.header import CONTROL
from dray.log.types import ReadRequest
from tests.services.compaction_cluster import MANY, Cluster

Row = tuple[int, bytes | None, bytes | None, int]  # offset, key, value, timestamp


async def append_keyed(
    cluster: Cluster, stream: int, records: list[tuple[bytes | None, bytes | None]], at: int | None = None
) -> None:
    """One batch, one object, one entry."""
    time = cluster.runtime.wall_ms() if at is None else at
    rows = [Record(place, time, key, value, ()) for place, (key, value) in enumerate(records)]
    data = twin.encode(rows)
    [batch] = validate(data, max_batch_bytes=MANY, max_decompressed_bytes=MANY)
    await cluster.log.append(stream, batch, memoryview(data))


async def read_keyed(cluster: Cluster, stream: int, position: int | None = None) -> tuple[list[Row], int]:
    """What a consumer gets, and where it comes to stand."""
    log = cluster.new_log()
    position = (await log.bounds(stream)).start if position is None else position
    found: list[Row] = []
    while True:
        request = ReadRequest(stream, position, MANY)
        [result] = await log.fetch([request], min_bytes=0, max_bytes=MANY, max_wait_ms=0)
        if result.error is not None:
            raise result.error
        if not result.buffers:
            return found, position
        for buffer in result.buffers:
            at = 0
            while at < len(buffer):
                header = read_header(buffer, at)
                batch = buffer[at : at + header.size]
                if not header.attributes & CONTROL:
                    found += [
                        (record.offset, record.key, record.value, record.timestamp)
                        for record in decode(batch, sparse=True).records()
                        if record.offset >= position
                    ]
                position = header.base_offset + header.last_offset_delta + 1
                at += header.size


def replayed(rows: list[Row]) -> dict[bytes, bytes]:
    """The state that a reader from the start ends with."""
    state: dict[bytes, bytes] = {}
    for _, key, value, _ in rows:
        if key is None:
            continue
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value
    return state


@dataclass
class KeyedLog:
    """A stream, all that was ever appended to it, and what must hold of what is left."""

    cluster: Cluster
    topic: Topic
    retention_ms: int  # of tombstones
    rows: list[Row] = field(default_factory=list)
    alone_since: dict[int, int] = field(default_factory=dict)  # tombstones without older records of their key
    left: set[int] = field(default_factory=set)

    @property
    def stream(self) -> int:
        return self.topic.streams[0]

    async def append(self, *records: tuple[bytes | None, bytes | None], at: int | None = None) -> None:
        time = self.cluster.runtime.wall_ms() if at is None else at
        await append_keyed(self.cluster, self.stream, list(records), time)
        for key, value in records:
            self.left.add(len(self.rows))
            self.rows.append((len(self.rows), key, value, time))

    async def check(self) -> None:
        """(a) replay equals replay, (b) order and offsets, (c) nothing but what was written, (d) no key is
        resurrected and no tombstone gone early; and the end is reached."""
        found, position = await read_keyed(self.cluster, self.stream)
        now = self.cluster.runtime.wall_ms()
        assert position == len(self.rows), "the position does not reach the end"
        assert [row[0] for row in found] == sorted({row[0] for row in found}), "offsets are out of order"
        assert all(self.rows[row[0]] == row for row in found), "a row is not what was written"
        assert replayed(found) == replayed(self.rows), "a reader from the start ends with another state"
        left = {row[0] for row in found}
        assert left <= self.left, "a row came back"
        for offset in self.left - left:
            self._may_go(offset, left, now)
        self.left = left
        for offset in left:
            _, key, value, _ = self.rows[offset]
            if key is not None and value is None and not self._older(offset, left):
                self.alone_since.setdefault(offset, now)

    def _older(self, offset: int, left: set[int]) -> bool:
        key = self.rows[offset][1]
        return any(self.rows[other][1] == key for other in left if other < offset)

    def _may_go(self, offset: int, left: set[int], now: int) -> None:
        _, key, value, _ = self.rows[offset]
        if key is None or any(self.rows[other][1] == key for other in left if other > offset):
            return  # superseded by what is there
        assert value is None, f"offset {offset} was the last of its key, and is gone"
        alone = self.alone_since.get(offset)
        assert alone is not None, f"the tombstone {offset} is gone before the records it deletes"
        assert alone + self.retention_ms <= now, f"the tombstone {offset} is gone too early"
