"""A topic's log over Kafka's protocol: its offsets, and its records as Arrow batches."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID

from dray.base.runtime import Runtime
from dray.kafka.client import AuthenticationFailed, ClientError, Cluster, RequestFailed
from dray.kafka.client.cluster import PASSING, ClusterView, Place
from dray.kafka.client.connection import Dial
from dray.kafka.client.errors import check
from dray.kafka.client.records import EARLIEST, LATEST, fetch, joined, list_offsets
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.fetch import PartitionData
from dray.kafka.protocol.messages.metadata import MetadataResponseTopic
from dray.kafka.records import decode
from dray.kafka.records.arrow import Uncommitted, is_control, to_arrow, whole_batches
from dray.kafka.records.header import BatchHeader
from dray.tables.spark_source.options import SourceOptions
from dray.tables.spark_source.ranges import Range, RecordsGone, SourceError

if TYPE_CHECKING:
    import pyarrow

T = TypeVar("T")

CLIENT_ID: Final = "dray-spark"
_FETCH_BYTES: Final = 16 * 1024 * 1024
_TIME_TYPE_BIT: Final = 3
_PASSING: Final = PASSING | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
"""A topic that is deleted between two questions is found to be gone by the next metadata."""


@dataclass(frozen=True)
class LogState:
    topic_ids: Mapping[str, UUID]
    starts: Mapping[Place, int]
    ends: Mapping[Place, int]


class TopicLog:
    """A read's questions about its topics, answered. Errors that pass are waited out, for as long as the
    options allow."""

    def __init__(
        self,
        options: SourceOptions,
        runtime: Runtime,
        topic_ids: Mapping[str, UUID] | None = None,
        dial: Dial | None = None,
    ) -> None:
        """`topic_ids`: the topics that offsets are of, where they are given. Another topic of the same name
        is never read in the place of one. `dial`: None for the way that the options say."""
        self.runtime = runtime
        self._options = options
        self._known = topic_ids or {}
        dial = dial or options.security.dialer(CLIENT_ID, runtime)
        self._cluster = Cluster(options.bootstrap, dial, runtime)
        self._found: tuple[ClusterView, dict[str, UUID]] | None = None

    async def topics(self) -> tuple[dict[str, UUID], str]:
        """The topics that there are, and the id of their cluster."""
        found = await self._patiently(self._topics)
        return found, self._cluster.view.cluster_id or ""

    async def state(self) -> LogState:
        """The topics' ids, and where each of their partitions starts and ends now."""
        starts = await self.offsets(EARLIEST)
        ends = await self.offsets(LATEST)
        topic_ids = await self._patiently(self._topics)
        # The ends were read after the starts: none lies before its start, whatever retention did.
        both = sorted(place for place in starts if place in ends and place[0] in topic_ids)
        return LogState(
            topic_ids, {place: starts[place] for place in both}, {place: ends[place] for place in both}
        )

    async def offsets(self, time: int) -> dict[Place, int]:
        """The first offset at or after a time, by partition; the end where there is no such record."""
        found = await self._patiently(partial(self._offsets, time))
        if time >= 0 and any(offset < 0 for offset in found.values()):
            ends = await self._patiently(partial(self._offsets, LATEST))
            found = {
                place: offset if offset >= 0 else ends.get(place, offset) for place, offset in found.items()
            }
        return {place: offset for place, offset in found.items() if offset >= 0}

    async def read(self, wanted: Range) -> AsyncIterator[pyarrow.RecordBatch]:
        """The records of a range, in order, in batches of the table's columns."""
        position = wanted.start
        while position < wanted.end:
            data = await self._patiently(partial(self._fetch, wanted, position))
            if data is None:
                return  # the topic is gone, and is to be passed over
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                starts = await self.offsets(EARLIEST)
                position = self._skip(wanted, position, starts.get(wanted.place, wanted.end))
                continue
            batches, following = whole_batches(joined(data.records), self._left_out(data))
            for run in batches:
                rows = to_arrow(decode(run, sparse=True), wanted.partition)
                offsets = rows.column("offset").to_numpy()
                first = int(offsets.searchsorted(position))
                last = int(offsets.searchsorted(wanted.end))
                if first < last:
                    yield with_kafkas_columns(rows.slice(first, last - first), wanted.topic)
            if following is None or following <= position:
                raise SourceError(
                    f"{wanted.topic}-{wanted.partition}: the broker has no records from offset "
                    f"{position} on, though the log reached to {wanted.end}"
                )
            position = following

    async def close(self) -> None:
        await self._cluster.close()

    def _left_out(self, data: PartitionData) -> Callable[[BatchHeader], bool]:
        if not self._options.committed:
            return is_control
        return Uncommitted((each.producer_id, each.first_offset) for each in data.aborted_transactions or ())

    def _skip(self, wanted: Range, position: int, start: int) -> int:
        if self._options.fail_on_data_loss or start <= position:
            raise RecordsGone(
                f"{wanted.topic}-{wanted.partition}: offset {position} is no longer in the log, which "
                f"starts at {start}; start further on, or set failOnDataLoss to false to skip what is gone"
            )
        return start

    # --- single requests

    async def _topics(self) -> dict[str, UUID]:
        """The topics that there are, of those that are read. Asked once, until something fails."""
        view = self._cluster.view
        if self._found is None or self._found[0] is not view:
            self._found = view, await self._find_topics()
        return self._found[1]

    async def _find_topics(self) -> dict[str, UUID]:
        names = {*self._options.topics, *filter(self._options.chosen, self._known)}
        found: list[MetadataResponseTopic] = []
        if self._options.pattern is not None:
            everything = (await self._cluster.learn(None)).topics
            found = [each for each in everything if self._options.chosen(each.name or "")]
            found = [each for each in found if not each.is_internal]
            names -= {each.name for each in found}
        if names:
            # By name also what a pattern named before: a list of all leaves out what one may not see.
            found += (await self._cluster.learn(sorted(names))).topics
        return dict(filter(None, map(self._checked, found)))

    def _checked(self, topic: MetadataResponseTopic) -> tuple[str, UUID] | None:
        """The topic's id; None of one that is gone, if that is no failure."""
        name = topic.name or ""
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._check_missing(name)
            return None
        check(f"topic {name}", topic.error_code)
        topic_id = self._cluster.view.topic_ids[name]
        self._check_same(name, topic_id)
        return name, topic_id

    def _check_missing(self, name: str) -> None:
        if name not in self._known:
            raise SourceError(f"there is no topic {name}")
        if self._options.fail_on_data_loss:
            raise RecordsGone(
                f"topic {name} was deleted since this read began; set failOnDataLoss to false to pass over it"
            )

    def _check_same(self, name: str, topic_id: UUID) -> None:
        if self._options.fail_on_data_loss and self._known.get(name, topic_id) != topic_id:
            raise RecordsGone(
                f"topic {name} was deleted and created again since this read began: start a new one, with a "
                "checkpoint of its own, or set failOnDataLoss to false to read the new topic as well"
            )

    async def _offsets(self, time: int) -> dict[Place, int]:
        places: list[Place] = []
        for name in sorted(await self._topics()):
            known = self._cluster.view.partitions(name)
            wanted = self._options.partitions.get(name, frozenset(known))
            if wanted - set(known):
                raise SourceError(f"topic {name} has no partition {min(wanted - set(known))}")
            places += [(name, partition) for partition in sorted(wanted)]
        found = await list_offsets(self._cluster, places, time, committed=self._options.committed)
        for name, partition in places:
            if (name, partition) not in found:
                raise RequestFailed(
                    f"topic {name}: a partition has no leader", ErrorCode.LEADER_NOT_AVAILABLE
                )
            check(f"{name}-{partition}", found[name, partition].error_code)
        return {place: answer.offset for place, answer in found.items()}

    async def _fetch(self, wanted: Range, offset: int) -> PartitionData | None:
        """None of a topic that is no longer there, if that is no failure."""
        name, partition = wanted.place
        topic_id = (await self._topics()).get(name)
        if topic_id is None or topic_id != self._known.get(name, topic_id):
            return None
        if partition not in self._cluster.view.partitions(name):
            raise SourceError(f"topic {name} has no partition {partition}")
        leader = self._cluster.view.leader(name, partition)
        if leader is None:
            raise RequestFailed(f"topic {name}: a partition has no leader", ErrorCode.LEADER_NOT_AVAILABLE)
        async with self._cluster.broker(leader) as broker:
            [data] = await fetch(
                broker,
                name,
                topic_id,
                {partition: offset},
                max_bytes=_FETCH_BYTES,
                committed=self._options.committed,
            )
        if data.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
            check(f"{name}-{partition}", data.error_code)
        return data

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        try:
            return await self._cluster.patiently(attempt, self._options.timeout_seconds, _PASSING)
        except (ClientError, RequestFailed) as error:
            if isinstance(error, RequestFailed) and error.code not in _PASSING:
                raise SourceError(str(error)) from error
            subject = self._options.subject
            if isinstance(error, AuthenticationFailed):
                raise SourceError(f"{subject} cannot be read: {error}") from error
            waited = f"could not be read for {self._options.timeout_seconds:g} s"
            raise SourceError(f"{subject} {waited}: {error}") from error


def with_kafkas_columns(rows: pyarrow.RecordBatch, topic: str) -> pyarrow.RecordBatch:
    """The rows with `topic` and `timestampType`: 0 is the producer's time, 1 the broker's."""
    import pyarrow
    from pyarrow import compute

    types = compute.bit_wise_and(compute.shift_right(rows.column("attributes"), _TIME_TYPE_BIT), 1)
    types = types.cast(pyarrow.int32())
    topics = pyarrow.repeat(pyarrow.scalar(topic), rows.num_rows)
    return rows.append_column("topic", topics).append_column("timestampType", types)
