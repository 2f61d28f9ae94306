"""A compactor's memory of the streams that it looked at, so that a cycle reads only what can have changed.

A stream in which nothing was to be done stays as it is until its high watermark moves, its job key moves
(every change of the index is a job's), its topic is configured otherwise, or something in it comes of age.
Hints say when to look; where they are in doubt, the version of the high watermark does: one key instead of
the whole index. And of a stream that did change, only the part of the index above the files that no plan will
touch again is read.

All of this only says where to look: jobs assert the versions that they found. So a stream that is wrongly
taken for quiet only waits for a while: everything is read again now and then, since a watch may miss changes.
If a domain is not followed, or its watch was interrupted, each of its streams is *in doubt*: its high
watermark is asked for.

A table may still show whole files that lie below a stream's start. Brokers raise starts, for DeleteRecords
and by retention, and know no catalog. A compactor that looks at a stream sees its start. If that is higher
than when the topic's table was last held against the log, the table is held against it in this very cycle,
not only when the collectors have their turn.

This is kept in memory only, and need not be right: after a restart every start above 0 counts as raised.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from dray.base.runtime import KeptTask, Runtime, keep_running
from dray.broker.topics.model import Topic, TopicSettings
from dray.log.entries import NO_TIMESTAMP, IndexEntry
from dray.log.jobs.clean_shares import CleanShares
from dray.log.stream_store import StreamStore, StreamView
from dray.metadata import keys
from dray.metadata.contract import MetadataError
from dray.tables.compaction.planning.plan import due_ms, reaches_below, settled
from dray.tables.compaction.settings import CompactionSettings
from dray.tables.compaction.summary import Backlog

_log = structlog.get_logger(__name__)

ABOVE_ALL: Final = 2**63
_PAUSE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class OldestEntry:
    """The facts of the oldest entry that retention needs."""

    newest_ms: int
    cumulative_size: int

    @classmethod
    def of(cls, entry: IndexEntry) -> OldestEntry:
        newest = entry.max_timestamp if entry.max_timestamp != NO_TIMESTAMP else entry.created_ms
        return cls(newest, entry.cumulative_size)


@dataclass(slots=True)
class StreamMemory:
    settings: TopicSettings
    start: int
    settled_end: int  # the files below this offset are never planned for again
    settled_files: int
    oldest: OldestEntry | None
    size: int  # cumulative, of the whole stream
    read_at: float  # when all of its index was read
    # Of the last look, if there was nothing to do: None otherwise.
    mark: int | None = None  # version of the high watermark
    job: int = 0  # version of the job key
    due_ms: int | None = None
    doubted: bool = False

    def may_expire(self, settings: TopicSettings, now_ms: int) -> bool:
        """May anything have expired? Retention itself decides, by its own read."""
        if self.mark is None or self.doubted:
            return True
        if self.oldest is None:
            return False
        too_old = settings.retention_ms >= 0 and self.oldest.newest_ms < now_ms - settings.retention_ms
        return too_old or 0 <= settings.retention_bytes <= self.size - self.oldest.cumulative_size


class StreamMemories:
    def __init__(self, settings: CompactionSettings) -> None:
        self._settings = settings
        self._streams: dict[int, StreamMemory] = {}
        self.backlogs: dict[int, Backlog] = {}
        self._shares: dict[int, CleanShares] = {}  # of streams that are compacted by key

    def hear(self, changed: Mapping[int, int], doubtful: set[int], domains: int) -> None:
        """Take in hints: by stream, the offset from which on its index may have changed, and domains in
        doubt."""
        for stream, end in changed.items():
            known = self._streams.get(stream)
            if known is not None and end <= known.settled_end:
                del self._streams[stream]  # an entry came back below the part that is read
            elif known is not None:
                known.mark = None
        for stream, known in self._streams.items():
            known.doubted = known.doubted or keys.domain_of_stream(stream, domains) in doubtful

    def forget(self, stream: int) -> None:
        """Another compactor goes about it now: what is remembered would be told as if it were still so."""
        self._streams.pop(stream, None)
        self.backlogs.pop(stream, None)
        self._shares.pop(stream, None)

    def keep_only(self, streams: Mapping[int, object]) -> None:
        for gone in self._streams.keys() - streams.keys():
            del self._streams[gone]
        for gone in self.backlogs.keys() - streams.keys():
            del self.backlogs[gone]
        for gone in self._shares.keys() - streams.keys():
            del self._shares[gone]

    def backlog(self, places: Mapping[int, tuple[Topic, int]]) -> dict[str, Backlog]:
        """By topic, what is not compacted of the streams that were looked at."""
        found: dict[str, Backlog] = {}
        for stream, backlog in self.backlogs.items():
            topic = places[stream][0].name
            found[topic] = found.get(topic, Backlog()) + backlog
        return found

    def clean_shares(self, places: Mapping[int, tuple[Topic, int]]) -> dict[str, CleanShares]:
        """By topic, what of the compacted streams that were looked at is clean and dirty."""
        found: dict[str, CleanShares] = {}
        for stream, shares in self._shares.items():
            topic = places[stream][0].name
            found[topic] = found.get(topic, CleanShares()) + shares
        return found

    def recall(self, stream: int, settings: TopicSettings, now: float) -> StreamMemory | None:
        """The memory of a stream, if its whole index was read not too long ago."""
        known = self._streams.get(stream)
        if (
            known is None
            or known.settings != settings
            or now - known.read_at >= self._settings.reread_seconds
        ):
            return None
        return known

    def may_expire(self, stream: int, settings: TopicSettings, now_ms: int) -> bool:
        known = self._streams.get(stream)
        return known is None or known.may_expire(settings, now_ms)

    def remember(
        self,
        stream: int,
        view: StreamView,
        settings: TopicSettings,
        before: StreamMemory | None,
        now: float,
        *,
        trim: bool = False,
    ) -> StreamMemory:
        """A look at a stream; `before` is what was known where only the end of the index was read. `trim`: as
        for the plan, which has to see the file that is to be trimmed until it is."""
        live = view.split()[0]
        files = settled(live, self._settings, by_day=settings.partition_by_day)
        if settings.compacts or (trim and reaches_below(live, view.start)):
            files = []
        if before is not None and before.settled_files:
            oldest = before.oldest
        else:
            first = live[0].value if live else view.high_watermark.value.head
            oldest = None if first is None else OldestEntry.of(first)
        end = files[-1].value.end if files else 0 if before is None else before.settled_end
        known = StreamMemory(
            settings=settings,
            start=view.start,
            settled_end=end,
            settled_files=len(files) + (0 if before is None else before.settled_files),
            oldest=oldest,
            size=view.high_watermark.value.cumulative_size,
            read_at=now if before is None else before.read_at,
        )
        self._streams[stream] = known
        self.backlogs[stream] = Backlog.of(view)
        if settings.compacts:
            self._shares[stream] = CleanShares.of(view)
        else:
            self._shares.pop(stream, None)
        return known

    def rests(self, known: StreamMemory, view: StreamView, job: int) -> None:
        """Nothing is to be done in the stream, as it was seen with that version of its job."""
        known.mark, known.job = view.high_watermark.version, job
        known.due_ms = due_ms(view, self._settings)


class Hints:
    """Which streams may have changed, by the store's watches."""

    def __init__(self, store: StreamStore, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime
        self._changed: dict[int, int] = {}  # by stream: the least end of an index entry that changed
        self._following: set[int] = set()  # domains whose watch is in place
        self._interrupted: set[int] = set()
        self._tasks: list[KeptTask] = []

    def start(self) -> None:
        self._tasks = [
            keep_running(self._runtime, f"compaction hints {domain}", partial(self._follow, domain))
            for domain in range(self._store.domains)
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            await task.stop()
        self._tasks = []

    def take(self) -> tuple[dict[int, int], set[int]]:
        """The hints since the last time: streams that changed, each with the offset from which on its index
        did, and domains whose streams are all in doubt. To be taken *before* a barrier: what is read behind
        the barrier is then newer than every hint taken here, and later hints wait for the next time."""
        changed, self._changed = self._changed, {}
        doubtful = self._interrupted | (set(range(self._store.domains)) - self._following)
        self._interrupted = set()
        return changed, doubtful

    async def _follow(self, domain: int) -> None:
        while True:
            try:
                async for change in self._store.watch_in(domain):
                    if change.key is None:
                        self._following.add(domain)
                        self._interrupted.add(domain)
                    else:
                        self._hear(change.key)
            except MetadataError as error:
                _log.warning("a watch was interrupted", domain=domain, error=str(error))
            finally:
                self._following.discard(domain)
            await self._runtime.sleep(_PAUSE_SECONDS)

    def _hear(self, key: str) -> None:
        stream = keys.stream_of(key)
        if stream is None:
            return
        end = keys.end_of_index_entry(key)
        known = self._changed.get(stream, ABOVE_ALL)
        self._changed[stream] = known if end is None else min(end, known)


# --- raised starts


class RaisedStarts:
    def __init__(self) -> None:
        self._seen: dict[int, int] = {}  # by stream
        self._held: dict[int, int] = {}  # the starts up to which tables were held against the log

    def see(self, stream: int, start: int) -> None:
        """Note the start of a stream whose topic has, or had, a table."""
        self._seen[stream] = start

    def of(self, streams: Iterable[int]) -> dict[int, int]:
        """The streams whose start was raised since, with their starts."""
        return {
            stream: start
            for stream in streams
            if (start := self._seen.get(stream, 0)) > self._held.get(stream, 0)
        }

    def hold(self, starts: dict[int, int]) -> None:
        """The table was held against the log, after these starts had been seen."""
        self._held |= starts

    def keep_only(self, streams: Collection[int]) -> None:
        for known in (self._seen, self._held):
            for gone in known.keys() - set(streams):
                del known[gone]
