"""Carrying a plan out: the steps of an attach, each of which may be the last before a process dies.

    step               what it leaves behind                         who goes on
    ---------------    ------------------------------------------    -------------------------------------
    begun              the record                                    attach with the same plan, or abort
    streams taken      their ids, in the record                      the same
    uploaded           objects of our own (log directories, DriftQ)  the same; each is put once
    laid down          the keys of the streams                       the same; each key is put if absent
    offsets            committed offsets of groups                   the same
    publishing         the record says so: there is no way back      any process, without the source
    published          the topic: clients see it                     the same
    attached           the record says so                            nothing is left to do

A live topic is linked by the same steps, but that its source goes on to own it: its streams are classic, and
it is MIRRORING at the end (`live/migration.py`). If no tier of it is attached: `live/link.py`.

Nothing is written to the source, ever.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from dray.base.runtime import Runtime
from dray.broker.groups import classic
from dray.broker.groups.classic import ClassicGroup
from dray.broker.groups.coordinator.storage import GroupKind, GroupRecord, encode_record
from dray.broker.groups.offsets import CommittedOffset
from dray.broker.topics import Topics
from dray.log.entries import NO_TIMESTAMP, HighWatermark
from dray.log.life.lifecycle import Lifecycle
from dray.log.origins import CLASSIC, NO_EPOCH, epoch_above
from dray.log.outside_table import OWN_STORE, AbortedRange
from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.metadata.contract import ABSENT, Delete, MetadataStore, Operation, Put
from dray.migration.attach.aiven_tiered import KeyRing
from dray.migration.attach.found import ROW, TIME_ROW, MigrationRefused
from dray.migration.attach.inventory import Counted, Progress, SourceLayout
from dray.migration.attach.lineage import ChosenSegment
from dray.migration.attach.midnights import (
    PlainSegment,
    SegmentBytes,
    UnpackedSegment,
    cut_at_midnights,
    oldest_of,
)
from dray.migration.attach.offsets import GroupOffset
from dray.migration.attach.plan import AttachPlan, PartitionPlan
from dray.migration.attach.reading import SourceReader, each_of
from dray.migration.entries.lay_down import (
    DAY_MS,
    AttachedStream,
    AttachRefused,
    ForeignSegment,
    SegmentCut,
    cut_positions,
    entries_of,
    lay_down,
    open_transactions,
)
from dray.migration.entries.ownership import COPIED, ForeignOwnership
from dray.migration.entries.segments import ForeignLayout
from dray.migration.formats.kafka_files import TimeRow
from dray.migration.live.steps import LiveOrigin, is_outdated, live_fields
from dray.migration.live.stragglers import ProducedStragglers
from dray.migration.record import (
    ENDED,
    MigrationLost,
    MigrationRecord,
    Migrations,
    MigrationState,
)
from dray.objects.contract import Buffer, ObjectError, ObjectMissing, ObjectStore

FAILPOINTS: Final = (
    "begun",
    "streams taken",
    "uploaded",
    "laid down",
    "offsets",
    "publishing",
    "published",
    "attached",
    "aborting",
    "topic deleted",
    "closed",
    "swept",
)
"""After each of these steps a test lets the process die."""

UPLOADS: Final = f"{COPIED}/uploads/"
"""The folder of segments that were uploaded into our own store."""

ENTRY_BYTES: Final = 128 << 20
"""A large segment becomes several entries of about so many bytes: what retention deletes at once, and what
compaction takes at once."""

_PIECE: Final = 8 << 20
_OFFSETS_AT_ONCE: Final = 256
_KEPT_FOR_EVER: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Unless something else is asked for: what is attached is mostly older than the default retention."""

_FORMS: Final = {
    SourceLayout.KAFKA_TIERED: ForeignLayout.KAFKA,
    SourceLayout.AIVEN: ForeignLayout.AIVEN,
    SourceLayout.KAFSCALE: ForeignLayout.KAFSCALE,
    SourceLayout.LOG_DIR: ForeignLayout.KAFKA,
    SourceLayout.DRIFTQ: ForeignLayout.KAFKA,
}


@dataclass(frozen=True, slots=True)
class AttachOrder:
    """The order to attach a plan, and the place of its source."""

    plan: AttachPlan
    url: str
    store: str
    """The name of the foreign store in the config; not asked for where segments are uploaded."""
    config: Mapping[str, str]
    keys: KeyRing = field(default_factory=lambda: KeyRing({}), repr=False)
    live: LiveOrigin | None = None
    """None where the source is gone or stopped."""


class Attacher:
    def __init__(
        self,
        *,
        metadata: MetadataStore,
        domains: int,
        streams: StreamStore,
        lifecycle: Lifecycle,
        topics: Topics,
        objects: ObjectStore,
        ownership: ForeignOwnership,
        runtime: Runtime,
        reached: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.streams = streams
        self.topics = topics
        self.runtime = runtime
        self.reached = reached
        self._metadata = metadata
        self._domains = domains
        self._lifecycle = lifecycle
        self._objects = objects
        self._ownership = ownership
        self.migrations = Migrations(metadata, runtime)
        self.before_seen: Callable[[], Awaitable[object]] = _nothing
        """Done before clients see a topic: the groups of a live source must be known by then."""
        self.before_forgotten: Callable[[], Awaitable[object]] = _nothing
        """Done before the record of an abort goes: no group may wait on for a topic that never comes."""

    # --- attach

    async def attach(
        self, source: SourceReader, order: AttachOrder, progress: Progress | None = None
    ) -> MigrationRecord:
        """May be called again after any failure, by any process, with the same plan."""
        plan = order.plan
        if plan.refused:
            raise MigrationRefused(str(plan.refused[0]))
        await self.forget_deleted(plan.topic)
        if await self.topics.refresh(plan.topic, barrier=True) is not None:
            known = await self.migrations.read(plan.topic)
            if known is None:
                raise MigrationRefused(f"topic {plan.topic} exists already, and was not attached")
        record = await self.begin(plan.topic, self._new_record(order))
        self._check_same(record, order)
        self.reached("begun")
        try:
            if record.state is MigrationState.ATTACHING:
                record = await self.take_streams(plan.topic, record)
                await self._lay_all_down(source, order, record, progress or Counted())
                await self._commit_offsets(plan.topic, record, plan.offsets)
                self.reached("offsets")
            return await self.publish(plan.topic, record, plan.offsets)
        except (MigrationLost, AttachRefused):
            current = await self.migrations.read(plan.topic)
            same = current is not None and current.migration_id == record.migration_id
            if same and current is not None and current.state is not MigrationState.ABORTING:
                raise
            await self.sweep(record)  # what this process laid down after the abort had swept
            raise MigrationLost(f"topic {plan.topic}: the migration was aborted meanwhile") from None

    async def begin(self, topic: str, new: MigrationRecord) -> MigrationRecord:
        """The record of this migration, or of the one that was begun before. A live source goes on tiering
        and deleting meanwhile: what was begun of it otherwise, and was never seen, is taken back first."""
        record = await self.migrations.begin(topic, new)
        if is_outdated(record, new):
            record = await self.migrations.step(topic, record, lambda current: _taking_back(topic, current))
            await self._take_back(topic, record)
            record = await self.migrations.begin(topic, new)
        return record

    def _new_record(self, order: AttachOrder) -> MigrationRecord:
        plan = order.plan
        epoch = max(plan.epoch, -1 if order.live is None else order.live.epoch, 0)
        return MigrationRecord(
            MigrationState.ATTACHING,
            self.runtime.uuid(),
            plan.topic_id or self.runtime.uuid(),
            plan.layout.value,
            order.url,
            order.store if plan.layout.is_borrowed else OWN_STORE,
            plan.digest,
            epoch_above(epoch),
            len(plan.partitions),
            (),
            tuple((each.start, each.end) for each in plan.partitions),
            {**_KEPT_FOR_EVER, **order.config},
            self.runtime.wall_ms(),
            **live_fields(order.live),
        )

    def _check_same(self, record: MigrationRecord, order: AttachOrder) -> None:
        topic = order.plan.topic
        if record.state is MigrationState.ABORTING:
            raise MigrationRefused(f"topic {topic}: an abort is under way: drayd migrate abort {topic}")
        if record.upstream != (None if order.live is None else order.live.upstream):
            raise MigrationRefused(f"topic {topic} was begun otherwise: drayd migrate status {topic}")
        if record.plan != order.plan.digest:
            what = "attached" if record.state in ENDED else "begun"
            raise MigrationRefused(
                f"topic {topic}: it was {what} with another plan, and the source has changed since: "
                f"drayd migrate status {topic}"
            )

    async def take_streams(self, topic: str, record: MigrationRecord) -> MigrationRecord:
        if not record.streams:
            taken = tuple(await self._lifecycle.take_ids(record.partitions))

            def with_streams(current: MigrationRecord) -> MigrationRecord:
                return current if current.streams else replace(current.to(current.state), streams=taken)

            record = await self.migrations.step(topic, record, with_streams)
        self.reached("streams taken")
        return record

    async def _lay_all_down(
        self, source: SourceReader, order: AttachOrder, record: MigrationRecord, progress: Progress
    ) -> None:
        plan = order.plan
        pieces = [(each, chosen) for each in plan.partitions for chosen in each.lineage.chosen]
        progress.expect(len(pieces))
        if not plan.layout.is_borrowed:
            await each_of(pieces, lambda piece: self._upload(source, plan, record, *piece), progress.advance)
        self.reached("uploaded")
        for partition, stream in zip(plan.partitions, record.streams, strict=True):
            await lay_down(self.streams, stream, await self._stream(source, order, record, partition))
            if plan.layout.is_borrowed:
                progress.advance(len(partition.lineage.chosen))
            else:
                await self._ownership.adopt(stream)  # what was uploaded is ours: the collector has to know it
        self.reached("laid down")

    async def _stream(
        self, source: SourceReader, order: AttachOrder, record: MigrationRecord, partition: PartitionPlan
    ) -> AttachedStream:
        chosen = [each for each in partition.lineage.chosen if each.end > partition.start]
        before = [NO_TIMESTAMP, *[each.segment.max_timestamp for each in chosen]]
        made = await each_of(
            list(zip(chosen, before, strict=False)),
            lambda each: self._segment(source, order, record, partition, *each),
        )
        aborted = {row[:3]: AbortedRange(*row[:3]) for each in chosen for row in each.aborted}
        for row in open_transactions(partition.producers, partition.end):
            aborted[row] = row
        return AttachedStream(
            entries_of(made, list(aborted.values()), record.created_ms),
            partition.start,
            partition.end,
            record.leader_epoch,
            partition.producers,
            CLASSIC if record.is_live else None,
            partition.lineage.last_epoch if record.is_live else NO_EPOCH,
        )

    async def _segment(
        self,
        source: SourceReader,
        order: AttachOrder,
        record: MigrationRecord,
        partition: PartitionPlan,
        chosen: ChosenSegment,
        before: int,
    ) -> tuple[ForeignSegment, list[SegmentCut]]:
        """`before`: the greatest time of the segment before it."""
        found, layout = chosen.segment, order.plan.layout
        rows = list(ROW.iter_unpack(found.rows))
        segment = ForeignSegment(
            segment_id=found.segment_id,
            store=record.store,
            path=found.path if layout.is_borrowed else upload_path(record, partition.partition, chosen),
            layout=_FORMS[layout],
            start=max(chosen.start, partition.start),
            end=chosen.end,
            max_timestamp=found.max_timestamp,
            min_timestamp=found.min_timestamp,
            rows=rows,
            end_position=rows[0][1] + found.segment_size,
            object_size=found.object_size,
            manifest=found.state_path if layout is SourceLayout.AIVEN else "",
            times=[TimeRow(*row) for row in TIME_ROW.iter_unpack(found.times)],
        )
        if layout is SourceLayout.DRIFTQ:
            return segment, []
        written: SegmentBytes = PlainSegment(source, found.path)
        if layout is SourceLayout.AIVEN:
            written = UnpackedSegment(source, found, order.keys)
            if found.min_timestamp // DAY_MS != before // DAY_MS:
                # Its time index begins a little behind its first record, which may be of the day before.
                first = await written.header(rows[0][1])
                segment = replace(segment, min_timestamp=oldest_of(first))
        segment, midnights = await cut_at_midnights(written, segment)
        cuts = {cut.position: cut for cut in midnights}
        for position in cut_positions(segment, ENTRY_BYTES):
            if position not in cuts:
                header = await written.header(position)
                cuts[position] = SegmentCut(position, header.base_offset)
        return segment, [cuts[position] for position in sorted(cuts)]

    # --- segments of our own

    async def _upload(
        self,
        source: SourceReader,
        plan: AttachPlan,
        record: MigrationRecord,
        partition: PartitionPlan,
        chosen: ChosenSegment,
    ) -> None:
        """Bytes as they are, up to the last whole batch. An object that is there already was put whole."""
        path = upload_path(record, partition.partition, chosen)
        try:
            try:
                if (await self._objects.head(path)).size == chosen.segment.object_size:
                    return
            except ObjectMissing:
                pass
            converted = plan.converted.get(partition.partition)
            if converted is not None:
                await self._objects.put(path, [converted])
            else:
                await self._objects.put_stream(path, _pieces(source, chosen))
        except ObjectError as error:
            raise MigrationRefused(f"the object store: {error}: run it again to go on") from error

    # --- from here on, the record has all that is needed

    async def publish(
        self, topic: str, record: MigrationRecord, offsets: Sequence[GroupOffset] = ()
    ) -> MigrationRecord:
        done = MigrationState.MIRRORING if record.is_live else MigrationState.ATTACHED
        unseen = (MigrationState.ATTACHING, MigrationState.ABORTING)
        if record.state not in (*unseen, MigrationState.PUBLISHING):
            return record
        await self.before_seen()
        record = await self.migrations.step(
            topic,
            record,
            lambda current: current.to(MigrationState.PUBLISHING) if current.state in unseen else current,
        )
        self.reached("publishing")
        await self.topics.attach(topic, record.topic_id, record.streams, record.config, record.leader_epoch)
        self.reached("published")
        # Once more: a sweep of offsets whose topic is not there may have come in between.
        await self._commit_offsets(topic, record, offsets)
        record = await self.migrations.step(
            topic,
            record,
            lambda current: current.to(done) if current.state is MigrationState.PUBLISHING else current,
        )
        self.reached("attached")
        return record

    async def _commit_offsets(
        self, topic: str, record: MigrationRecord, offsets: Sequence[GroupOffset]
    ) -> None:
        """As of now, so that they do not expire before their groups come back. Offsets here stay."""
        now_ms = self.runtime.wall_ms()
        by_group: dict[str, dict[tuple[str, int], CommittedOffset]] = {}
        for each in offsets:
            committed = CommittedOffset(each.offset, -1, each.metadata, now_ms, topic_id=record.topic_id)
            by_group.setdefault(each.group, {})[topic, each.partition] = committed
        step = min(_OFFSETS_AT_ONCE, self._metadata.limits.operations)
        for group, theirs in by_group.items():
            operations = _import_group(group, theirs, now_ms)
            for first in range(0, len(operations), step):
                await self._metadata.write(
                    keys.domain_of_group(group, self._domains), operations[first : first + step]
                )

    async def finish(self, topic: str) -> MigrationRecord | None:
        """Do what is left of a migration that has no way back: the source is not needed. None: nothing is."""
        record = await self.migrations.read(topic)
        if record is None or record.state is not MigrationState.PUBLISHING:
            return None
        return await self.publish(topic, record)

    async def forget_deleted(self, topic: str) -> MigrationRecord | None:
        """A migration that came to its end, and whose topic was deleted since, is over: the name may be used
        again, for the same source too. The record that went; None where there is no such one."""
        record = await self.migrations.read(topic)
        if record is None or record.state not in (*ENDED, MigrationState.SWITCHED):
            return None
        found = await self.topics.refresh(topic, barrier=True)
        if found is not None and not set(found.streams).isdisjoint(record.streams):
            return None
        await self.before_forgotten()
        await ProducedStragglers(self._metadata, self.runtime, topic, record.topic_id).forget()
        await self.migrations.forget(topic, record)
        return record

    # --- abort

    async def abort(self, topic: str) -> MigrationRecord | None:
        """Take back what an attach has left that did not come to its end, or a topic that its source still
        owns. None: there is nothing. A switch that is under way is withdrawn before (`live/migration.py`)."""
        forgotten = await self.forget_deleted(topic)
        if forgotten is not None:
            return forgotten
        record = await self.migrations.read(topic)
        if record is None:
            return None
        if record.is_live and record.state is MigrationState.PUBLISHING:
            record = await self.publish(topic, record)
        record = await self.migrations.step(topic, record, lambda current: _aborting(topic, current))
        self.reached("aborting")
        await self._take_back(topic, record)
        return record

    async def _take_back(self, topic: str, record: MigrationRecord) -> None:
        if record.is_live:
            await self._delete_topic(topic, record)
        self.reached("topic deleted")
        await self.sweep(record)
        await self._forget_offsets(topic, record)
        await self.before_forgotten()
        await self.migrations.forget(topic, record)
        self.reached("swept")

    async def _delete_topic(self, topic: str, record: MigrationRecord) -> None:
        found = await self.topics.refresh(topic, barrier=True)
        if found is not None and not set(found.streams).isdisjoint(record.streams):
            await self.topics.delete(topic)  # by its streams: one that is linked again has the same id

    async def sweep(self, record: MigrationRecord) -> None:
        """The streams are closed first: a process that still lays them down finds that out by itself."""
        for stream in record.streams:
            closed = HighWatermark(closed=True).encode()
            await self.streams.write(stream, [Put(keys.high_watermark(stream), closed, ABSENT)])
        await self._lifecycle.close(record.streams)
        self.reached("closed")
        await self._lifecycle.sweep(record.streams)
        try:
            async for info in self._objects.list(f"{UPLOADS}{record.migration_id.hex}"):
                await self._objects.delete(info.path)
        except ObjectError as error:
            raise MigrationRefused(f"the object store: {error}: run it again to go on") from error

    async def _forget_offsets(self, topic: str, record: MigrationRecord) -> None:
        """Those that were committed for a topic which never came."""
        end = keys.prefix_end(keys.GROUP_OFFSETS)
        for domain in range(self._domains):
            start = keys.GROUP_OFFSETS
            while page := await self._metadata.scan(domain, start, end, _OFFSETS_AT_ONCE):
                start = page[-1].key + "\0"
                gone: list[Operation] = []
                for each in page:
                    place = keys.place_of_offset(each.key)
                    if place is None or place[1] != topic:
                        continue
                    if CommittedOffset.decode(each.value).topic_id == record.topic_id:
                        gone.append(Delete(each.key, each.version))
                if gone:
                    await self._metadata.write(domain, gone)


def _aborting(topic: str, record: MigrationRecord) -> MigrationRecord:
    if record.state is MigrationState.ABORTING:
        return record
    if record.is_pending:
        raise MigrationRefused(f"topic {topic}: a switch was asked for meanwhile: run it again")
    if record.state not in (MigrationState.ATTACHING, MigrationState.MIRRORING):
        raise MigrationRefused(
            f"topic {topic} is {record.state}: there is no way back but to delete it (drayd admin topics "
            f"delete {topic}), which leaves the source's objects alone"
        )
    return record.to(MigrationState.ABORTING)


def _taking_back(topic: str, record: MigrationRecord) -> MigrationRecord:
    """Only while clients do not see it: else another process has gone on with it."""
    if record.state is not MigrationState.ATTACHING:
        raise MigrationLost(f"topic {topic}: another process goes on with it: drayd migrate status {topic}")
    return record.to(MigrationState.ABORTING)


async def _nothing() -> None:
    return None


def upload_path(record: MigrationRecord, partition: int, chosen: ChosenSegment) -> str:
    segment = chosen.segment
    return f"{UPLOADS}{record.migration_id.hex}/{partition}/{segment.start:020d}-{segment.segment_id.hex}.log"


async def _pieces(source: SourceReader, chosen: ChosenSegment) -> AsyncIterator[Sequence[Buffer]]:
    segment = chosen.segment
    for position in range(0, segment.object_size, _PIECE):
        length = min(_PIECE, segment.object_size - position)
        yield [await source.range(segment.path, position, length)]


def _import_group(
    group_id: str, offsets: Mapping[tuple[str, int], CommittedOffset], now_ms: int
) -> list[Operation]:
    """A record without members and its committed offsets: what to write in the group's domain. Nothing that
    is there is written over: a group that lives here knows better."""
    record = GroupRecord(GroupKind.CLASSIC, 1, classic.encode_group(ClassicGroup(group_id, now_ms)))
    return [
        Put(keys.group(group_id), encode_record(record), ABSENT),
        *[
            Put(keys.group_offset(group_id, topic, partition), offset.encode(), ABSENT)
            for (topic, partition), offset in offsets.items()
        ],
    ]
