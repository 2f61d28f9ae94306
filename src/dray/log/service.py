"""The log: what the rooms above see of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice

import structlog

from dray.base.runtime import (
    Allowance,
    AnswerRoom,
    EndlessRoom,
    ExpiryClock,
    KeptTask,
    Runtime,
    UndoubtedClock,
    gather_some,
    keep_running,
    run_once,
)
from dray.base.runtime.system import give_back
from dray.kafka.records import LEADER_EPOCH, Batch, patch
from dray.log.append.carried_lane import CarriedLane
from dray.log.append.carry import CarriedBacklog, CarryLimits
from dray.log.append.chunks import PendingBatch
from dray.log.append.commit import CommittedEntry, Committer
from dray.log.append.pipeline import DomainPipeline
from dray.log.jobs.packing import Packer
from dray.log.jobs.packing_rounds import PackingRounds
from dray.log.life.collector import Collector
from dray.log.life.counters import IdCounter, ProducerIds
from dray.log.life.deletions import MayDelete, nothing_may_go
from dray.log.life.lifecycle import Lifecycle, read_epochs
from dray.log.life.lost_objects import LostObjects, LostReads
from dray.log.life.retention import Retention
from dray.log.observer import LogObserver
from dray.log.origins import Origin
from dray.log.outside_entries import OutsideEntries, store_named
from dray.log.producer_state import RememberedBatch
from dray.log.read.doubts import Doubts
from dray.log.read.hearing import Hearing
from dray.log.read.index_cache import IndexCache
from dray.log.read.parquet_reader import ParquetReader
from dray.log.read.poll import Poller
from dray.log.read.reader import StreamReader
from dray.log.read.segments import SegmentReader
from dray.log.read.tail_cache import TailBatch, TailCache
from dray.log.read.time_lookup import TimeLookup
from dray.log.read.waiting import Wakeups
from dray.log.settings import LogSettings
from dray.log.stream_state import active_producers, advance_to_filed, stream_size
from dray.log.stream_store import StreamStore
from dray.log.types import (
    ActiveProducer,
    AppendResult,
    Bounds,
    LogError,
    LogUnavailable,
    ReadRequest,
    ReadResult,
    TimestampedOffset,
)
from dray.metadata import keys
from dray.metadata.contract import MetadataError, MetadataStore
from dray.objects.contract import ObjectError, ObjectStore

_log = structlog.get_logger(__name__)

# Bytes that a frame may hold beside its batch and still be kept whole in the tail cache.
_SPARE_BYTES = 4096
_UNFOLDED_AT_ONCE = 256 << 20
_KNOWN_FROM_CREATION = 4096  # streams of one call: a state takes memory until it is idle for a while
# At least so long from pack to pack: one takes a dozen writes of the metadata store.
_PACK_SECONDS = 0.5
_DELETIONS_AT_ONCE = 16  # streams; each has a page of its index in memory

# Bytes that have to leave the caches before free pages of the heap are given back.
_WORTH_RETURNING = 16 << 20


class Log:
    """Streams of record batches, in order, on an object store and a metadata store."""

    def __init__(
        self,
        store: MetadataStore,
        objects: ObjectStore,
        runtime: Runtime,
        domains: int,
        settings: LogSettings,
        observer: LogObserver | None = None,
        unfolding: Allowance | None = None,
        may_delete: MayDelete = nothing_may_go,
        expiry: ExpiryClock | None = None,
        outside: OutsideEntries | None = None,
        looks_after: Callable[[int], bool] = lambda _domain: True,
    ) -> None:
        """`unfolding` bounds what is unfolded at once, by this log and all others that share the bound.
        `outside` reads entries of objects that the log did not write, where there may be any. `looks_after`:
        does this process do in a domain what one process need do?"""
        self._looks_after = looks_after
        self._deleting: dict[int, bool] = {}
        """Streams whose records below the start are deleted now, or soon: is it due once more?"""
        self._deletions = asyncio.Semaphore(_DELETIONS_AT_ONCE)
        self.held: str | None = None
        """Why nothing may be appended now."""
        self._expiry = expiry or UndoubtedClock(runtime)
        self._settings = settings = settings.on(store.limits.inline)
        self._runtime = runtime
        self._domains = domains
        self._observer = observer or LogObserver()
        self._streams = StreamStore(store, domains, settings.producer_expiry_ms)
        self._index = IndexCache(settings.index_cache_entries)
        self._tail = TailCache(settings.tail_bytes)
        self._wakeups = Wakeups()
        self._set_up_reads(store, objects, outside, unfolding or Allowance(_UNFOLDED_AT_ONCE))
        self._set_up_upkeep(store, objects, may_delete, outside)
        each_committer = self._set_up_appends(store, objects)
        self._set_up_carrying(store, objects, each_committer)
        self._collections = 0
        self._tasks: list[KeptTask] = []
        self._has_appended = False  # lately
        if outside is not None:
            outside.join(self._streams, self._retention, self.start_raised)

    def _set_up_reads(
        self,
        store: MetadataStore,
        objects: ObjectStore,
        outside: OutsideEntries | None,
        unfolding: Allowance,
    ) -> None:
        runtime, settings, domains = self._runtime, self._settings, self._domains
        doubts = Doubts(runtime, settings.doubt_seconds, self._observer)
        segments = SegmentReader(objects, runtime, settings.segment_cache_bytes, doubts)
        parquet = ParquetReader(
            objects,
            runtime,
            settings.compacted_cache_bytes,
            settings.parquet_footer_cache_bytes,
            settings.parquet_groups_ahead,
            doubts,
        )
        self._hearing = Hearing(store, runtime, domains, self._index, settings.retry_seconds)
        self._reader = StreamReader(
            self._streams,
            self._index,
            self._tail,
            segments,
            parquet,
            outside,
            self._wakeups.wake,
            doubts,
            self._hearing.now,
        )
        self._poller = Poller(
            self._hearing, self._reader, runtime, self._wakeups, self._observer, settings.bounds_seconds
        )
        self._times = TimeLookup(self._reader, runtime, unfolding)

    def _set_up_upkeep(
        self,
        store: MetadataStore,
        objects: ObjectStore,
        may_delete: MayDelete,
        outside: OutsideEntries | None,
    ) -> None:
        """Retention, deletion and collection."""
        runtime, settings = self._runtime, self._settings
        self._retention = Retention(
            self._streams,
            runtime,
            settings,
            on_deleted=self._observer.records_deleted,
            expiry=self._expiry,
        )
        self._lifecycle = Lifecycle(
            self._streams,
            IdCounter(store, runtime, keys.STREAM_COUNTER, settings.stream_id_block),
            runtime,
            self._expiry,
        )
        lost = LostObjects(self._streams, partial(store_named, objects, outside), may_delete, runtime)
        self.lost = LostReads(lost, runtime, outside, settings.doubt_seconds)
        self._reader.on_missing = self.lost.suspect
        self._producer_ids = ProducerIds(store, runtime, keys.PRODUCER_COUNTER, settings.producer_id_block)
        self.collector = Collector(
            self._streams,
            objects,
            runtime,
            settings,
            self._observer,
            may_delete=may_delete,
            expiry=self._expiry,
            outside=outside,
        )

    def _set_up_appends(self, store: MetadataStore, objects: ObjectStore) -> list[Committer]:
        """One committer, or one for each domain, and the domains' pipelines."""
        runtime, settings, domains = self._runtime, self._settings, self._domains
        across = settings.carry is not None and settings.carry.across_domains
        lanes = 1 if across else domains
        each_committer = [
            Committer(
                self._streams,
                runtime,
                settings,
                self._committed,
                self._duplicate,
                self._observer.commit_retried,
                self._expiry,
                domains // lanes,
            )
            for _ in range(lanes)
        ]
        self._committers = [each_committer[domain % lanes] for domain in range(domains)]
        self._pipelines = [
            DomainPipeline(
                domain, store, objects, runtime, settings, committer, self._observer, self._settled
            )
            for domain, committer in enumerate(self._committers)
        ]
        return each_committer

    def _set_up_carrying(
        self, store: MetadataStore, objects: ObjectStore, each_committer: Sequence[Committer]
    ) -> None:
        runtime, settings, domains = self._runtime, self._settings, self._domains
        carry = settings.carry or CarryLimits.of(store.limits.inline)
        backlogs = [CarriedBacklog(carry) for _ in range(domains)]
        self._packing = [
            PackingRounds(
                domain,
                self._streams,
                runtime,
                Packer(
                    domain,
                    self._streams,
                    objects,
                    runtime,
                    settings,
                    self._retention,
                    backlog,
                    self._observer,
                ),
                backlog,
                self._observer,
            )
            for domain, backlog in enumerate(backlogs)
        ]
        self._much_is_carried = asyncio.Event()
        self._lanes: list[CarriedLane] = []
        if settings.carry is not None:
            most_streams = max(1, store.limits.operations // 3 - 16)
            self._lanes = [
                CarriedLane(
                    runtime,
                    settings.carry,
                    backlogs,
                    committer,
                    self._observer,
                    self._settled,
                    self._much_is_carried.set,
                    most_streams,
                )
                for committer in each_committer
            ]
            for domain, pipeline in enumerate(self._pipelines):
                pipeline.carry_by(self._lanes[domain % len(each_committer)])

    async def start(self) -> None:
        self._hearing.start()
        self.lost.start()
        self._tasks.append(keep_running(self._runtime, "collect WAL objects", self._collect))
        self._tasks.append(keep_running(self._runtime, "pack carried entries", self._pack_carried))
        self._tasks.append(keep_running(self._runtime, "empty idle caches", self._empty_idle_caches))

    async def stop(self) -> None:
        """Flush, commit and settle what was appended; then, or when there is no more time for it, stop what
        runs in the background."""
        try:
            await gather_some(pipeline.stop() for pipeline in self._pipelines)
        finally:
            await self.lost.stop()
            await self._hearing.stop()
            for task in self._tasks:
                await task.stop()
            self._tasks.clear()

    @property
    def is_carrying(self) -> bool:
        return any(lane.is_open for lane in self._lanes)

    @property
    def bridges_object_store(self) -> bool:
        """Would small appends go on without the object store, in every domain?"""
        return bool(self._lanes) and all(lane.is_open and lane.has_room for lane in self._lanes)

    def carry(self, on: bool) -> None:
        """Carry small appends from now on, or no longer. Only once every process of the cluster can read
        carried entries."""
        for lane in self._lanes:
            lane.is_open = on
        for rounds in self._packing:
            rounds.is_carrying = on and bool(self._lanes)

    # --- streams

    async def create_streams(self, count: int) -> list[int]:
        """Fresh streams. This broker knows the state of the first ones: it need not read it to append."""
        versions = await self._lifecycle.create_at(count)
        for stream, version in islice(versions.items(), _KNOWN_FROM_CREATION):
            self._committers[stream % self._domains].created(stream, version)
        return list(versions)

    async def take_stream_ids(self, count: int) -> list[int]:
        """Fresh ids, for streams that are laid down by other means than `create_streams`."""
        return await self._lifecycle.take_ids(count)

    async def close_streams(self, streams: Sequence[int]) -> None:
        await self._lifecycle.close(streams)
        for stream in streams:
            self._committers[stream % self._domains].forget(stream)
            self._reader.forget(stream)
            self._wakeups.wake(stream)

    async def sweep_streams(self, streams: Sequence[int]) -> None:
        await self._lifecycle.sweep(streams)

    # --- appending

    def append(
        self, stream: int, batch: Batch, buffer: memoryview, append_time_ms: int = -1
    ) -> asyncio.Future[AppendResult]:
        """Append a batch. When the future is done, the batch is in the log, at the offset that the future
        gives.

        From then on the buffer belongs to the log: it is patched and served to consumers.
        """
        future: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        if self.held is not None:
            future.set_exception(LogUnavailable(self.held))
            return future
        view = buffer[batch.position : batch.position + batch.length]
        self._pipelines[stream % self._domains].append(
            stream, PendingBatch(batch, view, append_time_ms, future)
        )
        return future

    def _committed(self, committed: CommittedEntry) -> None:
        stream = committed.stream
        start = self._known_start(stream)
        origin = committed.high_watermark.value.origin
        epoch = LEADER_EPOCH if origin is None else origin.leader_epoch
        tail: list[TailBatch] = []
        for base_offset, pending in committed.selected:
            view = _worth_keeping(pending.view)
            patch(view, 0, base_offset, epoch)
            tail.append(TailBatch(base_offset, base_offset + pending.batch.record_count, view))
            pending.acknowledge(AppendResult(base_offset, pending.append_time_ms, start))
        self._tail.add(stream, tail)
        self._observer.tail_cache(self._tail.size)
        self._index.observe(stream, committed.high_watermark)
        self._hearing.follow((stream % self._domains,))
        self._wakeups.wake(stream)
        self._has_appended = True

    def _duplicate(self, stream: int, remembered: RememberedBatch, pending: PendingBatch) -> None:
        pending.acknowledge(
            AppendResult(remembered.base_offset, remembered.append_time_ms, self._known_start(stream))
        )

    def _known_start(self, stream: int) -> int:
        """The start as this broker last saw it: by reading, or when it first wrote to the stream."""
        seen = self._index.start(stream), self._committers[stream % self._domains].start(stream)
        return max([start for start in seen if start is not None], default=-1)

    def _settled(self, streams: list[int]) -> None:
        """Move producer snapshots, so that the next appender of these streams has little to fold. No append
        waits for this."""
        for stream in streams:
            committer = self._committers[stream % self._domains]
            if committer.is_snapshot_due(stream):
                committer.snapshot_moved(stream)
                run_once(self._runtime, "producer snapshot", self._advance_snapshot, stream)

    async def _advance_snapshot(self, stream: int) -> None:
        try:
            await advance_to_filed(self._streams, stream, self._expiry.now_ms())
        except MetadataError as error:
            _log.debug("producer snapshot not moved", stream=stream, error=str(error))

    # --- reading

    async def bounds(self, stream: int) -> Bounds:
        return await self._reader.refresh(stream, barrier=True)

    async def fetch(
        self,
        requests: Sequence[ReadRequest],
        *,
        min_bytes: int,
        max_bytes: int,
        max_wait_ms: int,
        room: AnswerRoom | None = None,
    ) -> list[ReadResult]:
        return await self._poller.fetch(
            requests,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            max_wait_ms=max_wait_ms,
            room=room or EndlessRoom(),
        )

    async def find_timestamp(self, stream: int, timestamp: int) -> TimestampedOffset | None:
        return await self._times.first_at_or_after(stream, timestamp)

    def origin(self, stream: int) -> Origin | None:
        """The origin of a stream whose bounds were asked for. None: here."""
        return self._reader.origin(stream)

    async def end_of_epoch(self, stream: int, epoch: int, end: int) -> int:
        """The offset at which a leader epoch ended, in a stream that ends at `end`: earlier than that only if
        a restore gave records up."""
        origin = self._reader.origin(stream)
        if origin is None or epoch >= origin.leader_epoch:
            return end
        try:
            return (await read_epochs(self._streams, stream)).value.end_of(epoch, end)
        except MetadataError as error:
            raise LogUnavailable(f"the epochs of stream {stream} cannot be read: {error}") from error

    async def find_max_timestamp(self, stream: int) -> TimestampedOffset | None:
        return await self._times.latest_timestamp(stream)

    async def delete_records(self, stream: int, before: int) -> int:
        start = await self._retention.raise_start(stream, before, only_ours=True, deletes=False)
        self._delete_behind(stream)
        self._committers[stream % self._domains].forget(stream)  # sealed, perhaps
        await self.start_raised(stream)
        return start

    async def start_raised(self, stream: int) -> None:
        """This process has raised the stream's start: nothing below it is served or kept from now on."""
        self._reader.doubt_start(stream)  # so that the next fetch asks, if the store does not answer now
        with suppress(LogError):
            await self._reader.refresh(stream, barrier=True)

    def _delete_behind(self, stream: int) -> None:
        """Once at a time for a stream, and for some streams at a time, however many requests there are."""
        if stream in self._deleting:
            self._deleting[stream] = True  # once more, when it has ended
        else:
            self._deleting[stream] = False
            run_once(self._runtime, "delete below a start", self._delete_in_turn, stream)

    async def _delete_in_turn(self, stream: int) -> None:
        try:
            async with self._deletions:
                is_due = True
                while is_due:
                    self._deleting[stream] = False
                    await self._retention.delete_behind(stream)
                    is_due = self._deleting[stream]
        finally:
            del self._deleting[stream]

    async def size(self, stream: int) -> int:
        return await stream_size(self._streams, stream)

    def tell(
        self, domains: Sequence[int], moved: Callable[[int], None], doubted: Callable[[int], None]
    ) -> None:
        """From now on follow these domains: which of their streams have `moved`, and which domain has to be
        asked about anew."""
        self._hearing.tell(domains, moved, doubted)

    # --- producers

    async def producers(self, stream: int) -> list[ActiveProducer]:
        return await active_producers(self._streams, stream, self._runtime.wall_ms())

    async def allocate_producer_id(self) -> int:
        [producer_id] = await self._producer_ids.take()
        return producer_id

    # --- in the background

    async def _empty_idle_caches(self) -> None:
        """Drop what was not used for `cache_idle_seconds`. Memory is given back to the system when much was
        dropped, and after each while without appends: requests leave free heap behind, those that are refused
        most of all."""
        unreturned = 0
        while True:
            await self._runtime.sleep(self._settings.cache_idle_seconds / 2)
            before = self._reader.kept_bytes
            self._reader.forget_idle()
            for committer in dict.fromkeys(self._committers):
                committer.forget_idle()
            for lane in self._lanes:
                lane.forget_idle()
            await self._hearing.leave_unused()
            self._observer.tail_cache(self._tail.size)
            unreturned += before - self._reader.kept_bytes
            is_quiet, self._has_appended = not self._has_appended, False
            if unreturned >= _WORTH_RETURNING or is_quiet:
                await self._runtime.in_thread(give_back)
                unreturned = 0

    async def _pack_carried(self) -> None:
        """A round now and then, and soon when much is carried: at the bound, appends would be objects."""
        look = self._settings.pack_look_seconds
        await self._take_in_carried()
        while True:
            await self._runtime.sleep(min(look, _PACK_SECONDS))
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, look - _PACK_SECONDS)):
                    await self._much_is_carried.wait()
            self._much_is_carried.clear()
            for domain, rounds in enumerate(self._packing):
                try:
                    await rounds.run(follows=self._looks_after(domain))
                except MetadataError as error:
                    _log.warning("packing interrupted", error=str(error))

    async def _take_in_carried(self) -> None:
        """Count the entries that were carried before this process started."""
        left = list(self._packing)
        while left:
            try:
                await left[-1].take_in()
                left.pop()
            except MetadataError as error:
                _log.warning("what is carried is counted later", error=str(error))
                await self._runtime.sleep(_PACK_SECONDS)

    async def _collect(self) -> None:
        while True:
            await self._runtime.sleep(self._settings.collect_seconds)
            audit = self._collections % self._settings.audit_every_rounds == 0
            self._collections += 1
            ours = [domain for domain in range(self._domains) if self._looks_after(domain)]
            try:
                await self.collector.run(audit=audit and keys.CLUSTER_DOMAIN in ours, domains=ours)
                await self._lifecycle.forget_closed(ours)
            except (MetadataError, ObjectError) as error:
                _log.warning("collection interrupted", error=str(error))


def _worth_keeping(view: memoryview) -> memoryview:
    """The batch, or a copy of it. A slice keeps the whole frame it was cut from in memory. If most of the
    frame is something else, a copy costs less, and the cache really keeps to its limit."""
    frame: bytearray = view.obj  # type: ignore[assignment]
    return view if len(frame) <= 2 * len(view) + _SPARE_BYTES else memoryview(bytearray(view))
