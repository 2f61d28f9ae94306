"""The lag of this broker's groups: in records, and in seconds.

Looked for in the background, by the broker that coordinates a group, so that a scrape costs nothing. A round
reads the ends of a bounded number of streams, spread over the interval; where groups read more streams than
that, rounds take turns. Lag in seconds is the age of the first record that a group has not read, by that
record's own time: mostly it is in the entry that was read with the end.

Only what lags most has series of its own (`metrics.groups`); how much is left out is a number too. A group
that no broker has in memory is not seen: after a restart, one without members, until something asks for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

from dray.base.runtime import KeptTask, Runtime, keep_running
from dray.base.telemetry import Metrics
from dray.broker.groups.coordinator import Groups
from dray.broker.groups.coordinator.active import ActiveGroup
from dray.broker.groups.offsets import CommittedOffset
from dray.broker.topics import Topic, Topics, TopicsUnavailable
from dray.kafka.client.groups import lag as records_behind
from dray.log.entries import NO_TIMESTAMP, HighWatermark
from dray.log.read.time_lookup import time_in
from dray.log.stream_store import StreamStore
from dray.metadata.contract import MetadataError
from dray.metadata.values import UnreadableValue

READS_A_ROUND: Final = 1000
"""High watermarks read in one round."""
LOOKUPS_A_ROUND: Final = 200
"""Index entries read in one round, for the times of records."""

_AT_ONCE: Final = 8
_OFFSETS_A_TURN: Final = 2000

T = TypeVar("T")

Pair: TypeAlias = tuple[str, str]
"""A group and a topic."""


class GroupOffsets(Protocol):
    """A group in memory: its id, and its committed offsets by topic and partition."""

    @property
    def group_id(self) -> str: ...

    def offsets(self) -> Mapping[tuple[str, int], CommittedOffset]: ...


class LagSource(Protocol):
    """The source of the numbers from which lag is worked out."""

    def groups(self) -> Iterable[GroupOffsets]: ...

    async def topic(self, name: str) -> Topic | None:
        """None where there is none, or where it could not be asked for."""


class _Place(NamedTuple):
    pair: Pair
    stream: int
    committed: int


@dataclass(slots=True)
class _Lag:
    records: int = 0
    oldest_ms: int | None = None
    is_known: bool = False
    """Whether any end of its streams was read."""


@dataclass(slots=True)
class GroupLag:
    """`show` is how many pairs have series of their own."""

    source: LagSource
    streams: StreamStore
    runtime: Runtime
    metrics: Metrics
    show: int
    interval: float
    _ends: dict[int, HighWatermark] = field(default_factory=dict)
    _times: dict[tuple[int, int], int] = field(default_factory=dict)
    """By stream and offset: when the first record from there on was written."""
    _next: int = 0
    """The stream at which the next round goes on, where there are too many for one."""
    _task: KeptTask | None = None

    def start(self) -> None:
        if self.show:
            self._task = keep_running(self.runtime, "lag of groups", self._run)

    async def stop(self) -> None:
        if self._task is not None:
            await self._task.stop()
            self._task = None

    async def _run(self) -> None:
        while True:
            await self.runtime.sleep(self.interval)
            await self.look()

    async def look(self) -> None:
        """One round."""
        places = [place async for place in self._places()]
        await self._read_ends({place.stream for place in places})
        lags: dict[Pair, _Lag] = {}
        for place in places:
            self._add(lags.setdefault(place.pair, _Lag()), place)
        known = [pair for pair, lag in lags.items() if lag.is_known]
        shown = set(sorted(known, key=lambda pair: (-lags[pair].records, pair))[: self.show])
        await self._time([place for place in places if place.pair in shown], lags)
        self._show({pair: lags[pair] for pair in shown}, len(lags) - len(shown))

    async def _places(self) -> AsyncIterator[_Place]:
        seen = 0
        topics: dict[str, Topic | None] = {}
        for group in self.source.groups():
            for (topic, partition), committed in group.offsets().items():
                if topic not in topics:
                    topics[topic] = await self.source.topic(topic)
                known = topics[topic]
                stream = None if known is None else known.stream_of(partition)
                if stream is not None:
                    yield _Place((group.group_id, topic), stream, committed.offset)
                seen += 1
                if seen % _OFFSETS_A_TURN == 0:
                    await self.runtime.sleep(0)  # requests have their turn

    async def _read_ends(self, streams: set[int]) -> None:
        for gone in self._ends.keys() - streams:
            del self._ends[gone]
        ordered = sorted(streams)
        later = [stream for stream in ordered if stream >= self._next]
        chosen = [*later, *(stream for stream in ordered if stream < self._next)][:READS_A_ROUND]
        self._next = chosen[-1] + 1 if len(chosen) < len(ordered) else 0
        pause = self.interval / 2 / max(1, -(-len(chosen) // _AT_ONCE))
        for some in _pieces(chosen, _AT_ONCE):
            await asyncio.gather(*(self._read_end(stream) for stream in some))
            if len(chosen) > _AT_ONCE:
                await self.runtime.sleep(min(pause, 0.05))

    async def _read_end(self, stream: int) -> None:
        with suppress(
            MetadataError, UnreadableValue
        ):  # what was last known stands; the next round asks again
            found = await self.streams.high_watermark(stream)
            if found is None or found.value.closed:
                self._ends.pop(stream, None)
            else:
                self._ends[stream] = found.value

    def _add(self, lag: _Lag, place: _Place) -> None:
        end = self._ends.get(place.stream)
        if end is not None:
            lag.is_known = True
            lag.records += records_behind(place.committed, end.end)

    async def _time(self, places: list[_Place], lags: Mapping[Pair, _Lag]) -> None:
        """Of the partitions that lag, most first."""

        def behind(place: _Place) -> int:
            end = self._ends.get(place.stream)
            return 0 if end is None else records_behind(place.committed, end.end)

        lagging = sorted((place for place in places if behind(place)), key=lambda place: -behind(place))
        wanted = {(place.stream, place.committed) for place in lagging}
        self._times = {each: time for each, time in self._times.items() if each in wanted}
        lookups: dict[tuple[int, int], None] = {}
        for place in lagging:
            if (place.stream, place.committed) in self._times:
                continue
            head = self._ends[place.stream].head
            if head is not None and head.start <= place.committed:
                self._times[place.stream, place.committed] = time_in(head, place.committed)
            elif len(lookups) < LOOKUPS_A_ROUND:
                lookups[place.stream, place.committed] = None
        for some in _pieces(list(lookups), _AT_ONCE):
            await asyncio.gather(*(self._look_up(*each) for each in some))
        for place in lagging:
            written = self._times.get((place.stream, place.committed))
            lag = lags[place.pair]
            if written is not None and written != NO_TIMESTAMP:
                lag.oldest_ms = written if lag.oldest_ms is None else min(lag.oldest_ms, written)

    async def _look_up(self, stream: int, offset: int) -> None:
        with suppress(MetadataError, UnreadableValue):
            for found in await self.streams.entries_above(stream, offset, limit=1):
                # Records before it may have expired: then its first record is the oldest unread one.
                self._times[stream, offset] = time_in(found.value, max(offset, found.value.start))

    def _show(self, shown: Mapping[Pair, _Lag], left_out: int) -> None:
        now = self.runtime.wall_ms()
        records, seconds = self.metrics.group_lag_records, self.metrics.group_lag_seconds
        records.keep_only(shown)
        seconds.keep_only(
            pair for pair, lag in shown.items() if lag.records == 0 or lag.oldest_ms is not None
        )
        for pair, lag in shown.items():
            records.labels(*pair).value = lag.records
            if lag.records == 0:
                seconds.labels(*pair).value = 0
            elif lag.oldest_ms is not None:
                seconds.labels(*pair).value = max(0, now - lag.oldest_ms) / 1000
        self.metrics.group_lag_left_out.value = left_out


def _pieces(items: Sequence[T], size: int) -> Iterator[list[T]]:
    left = iter(items)
    while piece := list(islice(left, size)):
        yield piece


class CoordinatedGroups:
    """The groups that this broker coordinates."""

    def __init__(self, groups: Groups, topics: Topics) -> None:
        self._groups = groups
        self._topics = topics

    def groups(self) -> Iterator[GroupOffsets]:
        for group in self._groups.active():
            yield _OffsetsOf(group)

    async def topic(self, name: str) -> Topic | None:
        with suppress(TopicsUnavailable):
            return await self._topics.get(name)
        return None


class _OffsetsOf:
    def __init__(self, group: ActiveGroup) -> None:
        self._group = group

    @property
    def group_id(self) -> str:
        return self._group.group_id

    def offsets(self) -> Mapping[tuple[str, int], CommittedOffset]:
        return self._group.ledger.offsets()
