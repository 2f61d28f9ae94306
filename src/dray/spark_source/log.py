"""A topic's log over Kafka's protocol: what there is of it, and its records as Arrow batches."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID

from dray.client import AuthenticationFailed, ClientError, Cluster, RequestFailed
from dray.client.cluster import PASSING
from dray.client.connection import Dial
from dray.client.errors import check
from dray.client.records import EARLIEST, LATEST, fetch, joined, list_offsets
from dray.protocol import ErrorCode
from dray.protocol.messages.fetch import PartitionData
from dray.records import HEADER_SIZE, decode, read_header
from dray.records.arrow import to_arrow
from dray.records.header import CONTROL
from dray.runtime import Runtime
from dray.spark_source.options import SourceOptions
from dray.spark_source.ranges import Range

if TYPE_CHECKING:
    import pyarrow

T = TypeVar("T")

CLIENT_ID: Final = "dray-spark"
_FETCH_BYTES: Final = 16 * 1024 * 1024


class SourceError(Exception):
    """The log cannot be read as asked. The message is one line that says what to do."""


class RecordsGone(SourceError):
    """Records that were to be read are no longer in the log."""


@dataclass(frozen=True)
class TopicState:
    topic_id: UUID
    starts: Mapping[int, int]
    ends: Mapping[int, int]


class TopicLog:
    """What one task reads of a topic. Errors that pass are waited out, for as long as the options allow."""

    def __init__(
        self,
        options: SourceOptions,
        runtime: Runtime,
        topic_id: UUID | None = None,
        dial: Dial | None = None,
    ) -> None:
        """`topic_id`: the topic that offsets are of, where they are given. Another topic of the same name is
        never read in its place. `dial`: None for the way that the options say."""
        self._options = options
        self._topic_id = topic_id
        dial = dial or options.security.dialer(CLIENT_ID, runtime)
        self._cluster = Cluster(options.bootstrap, dial, runtime)

    async def state(self) -> TopicState:
        """The topic's id, and where each of its partitions starts and ends now."""
        starts = await self.offsets(EARLIEST)
        ends = await self.offsets(LATEST)
        topic_id = await self._patiently(self._find_topic)
        # The ends were read after the starts: none lies before its start, whatever retention did.
        return TopicState(
            topic_id,
            {partition: starts[partition] for partition in sorted(starts) if partition in ends},
            {partition: ends[partition] for partition in sorted(ends) if partition in starts},
        )

    async def offsets(self, time: int) -> dict[int, int]:
        """The first offset at or after a time, by partition; the end where there is no such record."""
        found = await self._patiently(partial(self._offsets, time))
        if time >= 0 and any(offset < 0 for offset in found.values()):
            ends = await self._patiently(partial(self._offsets, LATEST))
            found = {
                partition: offset if offset >= 0 else ends[partition] for partition, offset in found.items()
            }
        return found

    async def read(self, wanted: Range) -> AsyncIterator[pyarrow.RecordBatch]:
        """The records of a range, in order, in batches of the table's columns."""
        position = wanted.start
        while position < wanted.end:
            data = await self._patiently(partial(self._fetch, wanted.partition, position))
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                position = self._skip(wanted, position, (await self.offsets(EARLIEST))[wanted.partition])
                continue
            batches, following = whole_batches(joined(data.records))
            for run in batches:
                rows = to_arrow(decode(run, sparse=True), wanted.partition)
                offsets = rows.column("offset").to_numpy()
                first = int(offsets.searchsorted(position))
                last = int(offsets.searchsorted(wanted.end))
                if first < last:
                    yield rows.slice(first, last - first)
            if following is None or following <= position:
                raise SourceError(
                    f"{self._options.topic}-{wanted.partition}: the broker has no records from offset "
                    f"{position} on, though the log reached to {wanted.end}"
                )
            position = following

    async def close(self) -> None:
        await self._cluster.close()

    def _skip(self, wanted: Range, position: int, start: int) -> int:
        if self._options.fail_on_data_loss or start <= position:
            raise RecordsGone(
                f"{self._options.topic}-{wanted.partition}: offset {position} is no longer in the log, which "
                f"starts at {start}; start further on, or set failOnDataLoss to false to skip what is gone"
            )
        return start

    # --- single requests

    async def _find_topic(self) -> UUID:
        """The topic's id. Asked once, until something fails."""
        name = self._options.topic
        if name not in self._cluster.view.topic_ids:
            metadata = await self._cluster.learn([name])
            code = metadata.topics[0].error_code
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise SourceError(f"there is no topic {name}")
            check(f"topic {name}", code)
        topic_id = self._cluster.view.topic_ids[name]
        if self._topic_id is not None and topic_id != self._topic_id:
            raise SourceError(f"topic {name} was deleted and created again meanwhile")
        return topic_id

    async def _offsets(self, time: int) -> dict[int, int]:
        await self._find_topic()
        name, wanted = self._options.topic, self._options.partitions
        known = self._cluster.view.partitions(name)
        missing = (wanted or frozenset()) - set(known)
        if missing:
            raise SourceError(f"topic {name} has no partition {min(missing)}")
        places = [(name, partition) for partition in known if wanted is None or partition in wanted]
        found = await list_offsets(self._cluster, places, time)
        if len(found) < len(places):
            raise RequestFailed(f"topic {name}: a partition has no leader", ErrorCode.LEADER_NOT_AVAILABLE)
        for (_, partition), answer in found.items():
            check(f"{name}-{partition}", answer.error_code)
        return {partition: answer.offset for (_, partition), answer in found.items()}

    async def _fetch(self, partition: int, offset: int) -> PartitionData:
        topic_id = await self._find_topic()
        name = self._options.topic
        if partition not in self._cluster.view.partitions(name):
            raise SourceError(f"topic {name} has no partition {partition}")
        leader = self._cluster.view.leader(name, partition)
        if leader is None:
            raise RequestFailed(f"topic {name}: a partition has no leader", ErrorCode.LEADER_NOT_AVAILABLE)
        async with self._cluster.broker(leader) as broker:
            [data] = await fetch(broker, name, topic_id, {partition: offset}, max_bytes=_FETCH_BYTES)
        if data.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
            check(f"{name}-{partition}", data.error_code)
        return data

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        try:
            return await self._cluster.patiently(attempt, self._options.timeout_seconds)
        except (ClientError, RequestFailed) as error:
            if isinstance(error, RequestFailed) and error.code not in PASSING:
                raise SourceError(str(error)) from error
            if isinstance(error, AuthenticationFailed):
                raise SourceError(f"topic {self._options.topic} cannot be read: {error}") from error
            waited = f"was not readable for {self._options.timeout_seconds:g} s"
            raise SourceError(f"topic {self._options.topic} {waited}: {error}") from error


def whole_batches(data: bytes | bytearray | memoryview) -> tuple[list[memoryview], int | None]:
    """Runs of record batches without what is not records (control batches, a batch cut off at the end), and
    the offset after the last batch, None if there is none."""
    view = memoryview(data)
    runs: list[memoryview] = []
    begun = position = 0
    following: int | None = None
    while position + HEADER_SIZE <= len(view):
        header = read_header(view, position)
        if header.size < HEADER_SIZE or position + header.size > len(view):
            break
        following = header.base_offset + header.last_offset_delta + 1
        if header.attributes & CONTROL:
            if begun < position:
                runs.append(view[begun:position])
            begun = position + header.size
        position += header.size
    if begun < position:
        runs.append(view[begun:position])
    return runs, following
