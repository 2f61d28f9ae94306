"""Live migrations, from the config to the rooms that do them. Whatever goes wrong is one line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from dray.client.cluster import Cluster
from dray.client.errors import ClientError, RequestFailed
from dray.config import Settings
from dray.daemon import migration
from dray.daemon.followed_configs import compare_configs
from dray.daemon.followed_upstreams import FollowedUpstream
from dray.daemon.live_topic import KafkaTopic, Upstream, live_settings, mirror_memory
from dray.daemon.source_looks import SourcePatience, known_ends
from dray.daemon.upstream_clusters import CLIENT_ID, UnknownUpstream, UpstreamClusters
from dray.groups.coordinator.copies import GroupCopies
from dray.groups.followed import CopyState
from dray.log.boundary_decision import boundary_of
from dray.migration.aiven_tiered import KeyRing
from dray.migration.attach import AttachOrder
from dray.migration.following import groups_of
from dray.migration.found import MigrationRefused
from dray.migration.inventory import Counted, Progress
from dray.migration.link import link_topic
from dray.migration.live import LiveOrigin, request_switch
from dray.migration.live_migration import LiveMigration
from dray.migration.plan import AttachPlan
from dray.migration.record import MigrationRecord, MigrationState
from dray.migration.status import status_of
from dray.protocol import ErrorCode
from dray.runtime import Runtime
from dray.topics.configs import check_configs
from dray.topics.errors import TopicError
from dray.upstream.fences import FenceRefused
from dray.upstream.group_follower import groups_left
from dray.upstream.link_plan import LinkPlan, SourceUnsuitable, plan_link, source_starts
from dray.upstream.source import SourceTopic
from dray.upstream.source_groups import SourceGroups

LOOK_SECONDS: Final = 0.5
WATCH_SECONDS: Final = 1.0


def _unsaid(_: str) -> None:
    return None


@dataclass(frozen=True, slots=True)
class LinkRequest:
    topic: str
    upstream: str
    tier: migration.SourceRequest | None = None
    """Segments in tiered storage, which are attached where they lie."""


@dataclass(frozen=True, slots=True)
class LinkPreview:
    plan: LinkPlan
    tier: AttachPlan | None
    configs: dict[str, str]
    """Those of the source's that Dray knows."""


def preview(
    settings: Settings,
    request: LinkRequest,
    progress: Progress | None = None,
    said: Callable[[str], None] = _unsaid,
) -> LinkPreview:
    """Only looks. `said` gets a line when the source makes us wait."""

    async def work(runtime: Runtime) -> LinkPreview:
        patience = SourcePatience(request.topic, runtime, said)
        async with _upstream(settings, runtime, request.upstream) as cluster:
            return await patience.ask(cluster, lambda: _look(settings, request, cluster, runtime, progress))

    return migration.run(work)


def link(
    settings: Settings,
    request: LinkRequest,
    approve: Callable[[LinkPreview], bool],
    progress: Progress | None = None,
    said: Callable[[str], None] = _unsaid,
) -> MigrationRecord | None:
    """None where it was not approved."""

    async def work(runtime: Runtime) -> MigrationRecord | None:
        topic = request.topic
        async with (
            _upstream(settings, runtime, request.upstream) as cluster,
            migration.opened(settings, runtime) as rooms,
        ):
            groups = FollowedUpstream(
                request.upstream, cluster, rooms, runtime, settings.upstream.group_interval
            )
            rooms.attacher.before_seen = lambda: groups.follow(topic, at_once=True)
            earlier = await rooms.attacher.migrations.read(topic)
            copies = _copies(rooms, runtime, None if earlier is None else earlier.upstream)
            rooms.attacher.before_forgotten = lambda: copies.forget_topic(topic, moved=True)
            await rooms.attacher.forget_deleted(topic)
            finished = await rooms.attacher.finish(topic)
            if finished is not None:
                return finished
            known = await rooms.attacher.migrations.read(topic)
            if known is not None and known.state not in (MigrationState.ATTACHING, MigrationState.ABORTING):
                raise MigrationRefused(
                    f"topic {topic} is {known.state} already: drayd migrate status {topic}"
                )
            if known is None and await rooms.topics.refresh(topic, barrier=True) is not None:
                raise MigrationRefused(
                    f"topic {topic} exists here already, and is no link: delete it first (drayd admin topics "
                    f"delete {topic}), or leave it"
                )
            patience = SourcePatience(topic, runtime, said)
            found = await patience.ask(cluster, lambda: _look(settings, request, cluster, runtime, progress))
            if not approve(found):
                return None
            origin = LiveOrigin(request.upstream, found.plan.topic_id, found.plan.epoch)
            if request.tier is None or found.tier is None:
                # Once more: the source has gone on deleting while the operator was asked.
                starts = await patience.ask(cluster, lambda: source_starts(cluster, found.plan))
                where = ",".join(f"{host}:{port}" for host, port in _names(settings, runtime, request))
                return await link_topic(rooms.attacher, topic, origin, starts, found.configs, where)
            place = migration.find_place(settings, request.tier)
            keys = KeyRing(place.address.keys)
            order = AttachOrder(found.tier, place.address.url, place.name, found.configs, keys, origin)
            async with migration.open_source(place, runtime) as source:
                return await rooms.attacher.attach(source, order, progress or Counted())

    return migration.run(work)


def _names(settings: Settings, runtime: Runtime, request: LinkRequest) -> list[tuple[str, int]]:
    return UpstreamClusters(settings, runtime).bootstrap(request.upstream)


async def _look(
    settings: Settings, request: LinkRequest, cluster: Cluster, runtime: Runtime, progress: Progress | None
) -> LinkPreview:
    plan = await plan_link(cluster, request.topic)
    tier = None
    if request.tier is not None:
        wanted = request.tier
        if wanted.topic_id is None and plan.topic_id.int:
            wanted = replace(wanted, topic_id=plan.topic_id)
        place = migration.find_place(settings, wanted)
        if not place.name:
            raise MigrationRefused(
                f"brokers read it where it lies, and do not know {place.address.url}: add it to "
                "foreign.stores in the config of every broker and compactor, and restart them"
            )
        async with migration.open_source(place, runtime) as source:
            tier = await migration.plan_of(source, place, wanted, runtime, progress)
        plan = replace(plan, notes=[*plan.notes, *_check_tier(plan, tier)])
    configs = await compare_configs(cluster, request.topic, settings.topics.defaults)
    try:
        check_configs(configs.wanted)
    except TopicError as error:
        raise MigrationRefused(f"the source's configs cannot stand together here: {error}") from error
    notes = list(plan.notes)
    if configs.refused:
        notes.append(f"configs that mean nothing here are left out: {', '.join(sorted(configs.refused))}")
    return LinkPreview(replace(plan, notes=notes), tier, dict(configs.wanted))


def _check_tier(plan: LinkPlan, tier: AttachPlan) -> list[str]:
    """The mirror goes on where the tier ends: so it has to end where the source still has records."""
    if tier.refused:
        raise MigrationRefused(str(tier.refused[0]))
    if len(tier.partitions) > len(plan.ends):
        raise MigrationRefused(
            f"topic {plan.topic} has {len(plan.ends)} partitions at the source and {len(tier.partitions)} in "
            "its tier: it is another one"
        )
    if len(tier.partitions) < len(plan.ends):
        raise MigrationRefused(
            f"partition {len(tier.partitions)} of {plan.topic} is not in the tier at all: link without "
            "--from, or wait until it is"
        )
    for each in tier.partitions:
        end = plan.ends[each.partition]
        if each.open_transactions:
            row = each.open_transactions[0]
            raise MigrationRefused(
                f"partition {each.partition}: the transaction of producer {row.producer_id} was still open "
                f"where the tier ends, at offset {each.end}: wait for its next segment, then run it again"
            )
        if not end.start <= each.end <= end.last_stable:
            raise MigrationRefused(
                f"partition {each.partition}: the tier ends at {each.end}, and the source has {end.start} to "
                f"{end.last_stable}: it is not the tier of this topic, or the source has lost records"
            )
    return []


# --- switch


@dataclass(frozen=True, slots=True)
class SwitchPreview:
    record: MigrationRecord
    lags: dict[int, int] = field(default_factory=dict)
    """Records that the mirror still has to bring, by partition."""
    transactions: list[str] = field(default_factory=list)
    """Those that are open at the source, of any topic."""

    @property
    def lag(self) -> int:
        return sum(self.lags.values())


def switch(
    settings: Settings,
    topic: str,
    fence: str,
    approve: Callable[[SwitchPreview], bool],
    said: Callable[[str], None] = _unsaid,
) -> MigrationRecord | None:
    """Ask for it: a migrator does it. None where it was not approved."""

    async def work(runtime: Runtime) -> MigrationRecord | None:
        async with migration.opened(settings, runtime) as rooms:
            migrations = rooms.attacher.migrations
            record = await migrations.read(topic)
            if record is None or not record.is_live:
                raise MigrationRefused(f"topic {topic} is not linked: drayd migrate link {topic}")
            if record.state is MigrationState.MIRRORING:
                async with _live_topic(settings, rooms, topic, record, runtime) as live:
                    found = await preview_switch(live, record, fence, SourcePatience(topic, runtime, said))
                if not approve(found):
                    return None
            return await request_switch(migrations, topic, fence)

    return migration.run(work)


async def preview_switch(
    live: KafkaTopic, record: MigrationRecord, fence: str, patience: SourcePatience
) -> SwitchPreview:
    """What only looks comes first: it is asked again while a leader is missing, and the check of a fence
    writes to the source."""

    async def look() -> SwitchPreview:
        await live.source.learn()
        lags = await live.lags()
        transactions = await live.source.open_transactions()
        undo = await live.before_fence(fence)
        await live.fence(fence, undo).check(live.source)
        return SwitchPreview(record, lags, transactions)

    return await patience.ask(live.control, look)


def wait_switched(
    settings: Settings, topic: str, asked: MigrationRecord, shown: Callable[[MigrationRecord], None]
) -> MigrationRecord:
    """Until the switch that was asked for is done, or went back."""

    async def work(runtime: Runtime) -> MigrationRecord:
        async with migration.opened(settings, runtime) as rooms:
            while True:
                record = await rooms.attacher.migrations.read(topic)
                if record is None or record.migration_id != asked.migration_id:
                    raise MigrationRefused(f"topic {topic}: the migration was aborted meanwhile")
                shown(record)
                if record.state in (MigrationState.SWITCHED, MigrationState.MOVED):
                    return record
                if record.attempt != asked.attempt or not record.is_pending:
                    raise MigrationRefused(
                        f"topic {topic}: the switch went back, and the source owns it as before: {record.why}"
                    )
                await runtime.sleep(LOOK_SECONDS)

    return migration.run(work)


# --- status


@dataclass(frozen=True, slots=True)
class MirroredPartition:
    partition: int
    mirrored: int | None
    """The offset up to which it is here; None where its stream is gone."""
    source_end: int | None
    """The last stable offset there; None where the source was not asked, or did not answer."""
    boundary: int | None

    @property
    def lag(self) -> int | None:
        if self.boundary is not None:
            return 0
        if self.source_end is None or self.mirrored is None:
            return None
        return max(0, self.source_end - self.mirrored)


@dataclass(frozen=True, slots=True)
class LiveStatus:
    topic: str
    record: MigrationRecord
    partitions: list[MirroredPartition]
    trouble: str = ""
    """Why the source could not be asked."""
    groups: Mapping[CopyState, Sequence[str]] = field(default_factory=dict)
    unread: Sequence[str] = ()
    """Those of the groups that wait of which the source has not said how far they have read."""
    left: Mapping[str, str] = field(default_factory=dict)
    """Groups of the source, of any topic, that do not come here, and why."""
    borrowed: int = 0
    """Segments that still belong to the source. They are not counted for a watch."""


def live_status(settings: Settings, topic: str) -> LiveStatus | None:
    """None for a topic that is not linked."""

    async def work(runtime: Runtime) -> LiveStatus | None:
        async with migration.opened(settings, runtime) as rooms:
            found = await _status(settings, rooms, topic, runtime)
            if found is None or not found.record.has_tier:
                return found
            known = await status_of(rooms.streams, topic, found.record, exists=True)
            return replace(found, borrowed=known.borrowed)

    return migration.run(work)


def watch_live(settings: Settings, topic: str, shown: Callable[[LiveStatus], None]) -> None:
    """Until it is Dray's, or is taken back."""

    async def work(runtime: Runtime) -> None:
        async with migration.opened(settings, runtime) as rooms:
            while (found := await _status(settings, rooms, topic, runtime)) is not None:
                shown(found)
                if found.record.state in (MigrationState.MOVED, MigrationState.ABORTING):
                    return
                await runtime.sleep(WATCH_SECONDS)
        raise MigrationRefused(f"topic {topic} is not linked here")

    migration.run(work)


async def _status(
    settings: Settings, rooms: migration.Rooms, topic: str, runtime: Runtime
) -> LiveStatus | None:
    record = await rooms.attacher.migrations.read(topic)
    if record is None or not record.is_live:
        return None
    ends: dict[int, int] = {}
    left: dict[str, str] = {}
    trouble = ""
    if record.is_classic or record.state is MigrationState.SWITCHED:
        # Once it is switched, groups wait for the source, which may be gone by then.
        try:
            async with _upstream(settings, runtime, record.upstream or "") as cluster:
                ends, trouble = await known_ends(SourceTopic(cluster, topic))
                left = groups_left(await SourceGroups(cluster).listed())
        except MigrationRefused as error:
            trouble = str(error)
    partitions = []
    for number, stream in enumerate(record.streams):
        found = await rooms.streams.high_watermark(stream)
        if found is None or found.value.closed:
            partitions.append(MirroredPartition(number, None, ends.get(number), None))
            continue
        boundary = None if found.value.is_classic else await boundary_of(rooms.streams, stream)
        partitions.append(MirroredPartition(number, found.value.end, ends.get(number), boundary))
    groups = await groups_of(_copies(rooms, runtime, record.upstream), topic)
    return LiveStatus(topic, record, partitions, trouble, groups.states, groups.unread, left)


# --- abort


def abort(
    settings: Settings,
    topic: str,
    *,
    without_source: bool = False,
    said: Callable[[str], None] = _unsaid,
) -> MigrationRecord | None:
    """Of a live topic: a switch that is under way is taken back, its fence lifted, and then the topic goes.
    `without_source`: the source is gone for good, so that there is nothing to lift."""

    async def work(runtime: Runtime) -> MigrationRecord | None:
        async with migration.opened(settings, runtime) as rooms:
            migrations = rooms.attacher.migrations
            record = await migrations.read(topic)
            if record is None:
                return None
            if record.is_live and (record.is_pending or record.undo is not None or record.lifted):
                async with _live_topic(
                    settings, rooms, topic, record, runtime, is_gone=without_source
                ) as live:
                    made = LiveMigration(topic, migrations, live, runtime, live_settings(settings))
                    await SourcePatience(topic, runtime, said).ask(live.control, made.withdraw)
            if record.upstream is None:
                return await rooms.attacher.abort(topic)
            copies = _copies(rooms, runtime, record.upstream)
            is_over = record.state in (MigrationState.SWITCHED, MigrationState.MOVED)
            rooms.attacher.before_forgotten = lambda: copies.forget_topic(topic, moved=is_over)
            done = await rooms.attacher.abort(topic)
            await copies.forget_topic(topic)  # once more: a round of a migrator may have been under way
            return done

    return migration.run(work)


def _copies(rooms: migration.Rooms, runtime: Runtime, upstream: str | None) -> GroupCopies:
    """Of the groups that come from there."""
    return GroupCopies(rooms.stores.metadata, runtime, rooms.cluster.domains, upstream or "")


# --- the source


@asynccontextmanager
async def _live_topic(
    settings: Settings,
    rooms: migration.Rooms,
    topic: str,
    record: MigrationRecord,
    runtime: Runtime,
    *,
    is_gone: bool = False,
) -> AsyncIterator[KafkaTopic]:
    name = record.upstream or ""
    with _one_line(name):
        clusters = UpstreamClusters(settings, runtime)
        cluster = Cluster([], clusters.dialer(name, CLIENT_ID), runtime) if is_gone else clusters.open(name)
        groups = FollowedUpstream(name, cluster, rooms, runtime, settings.upstream.group_interval)
        upstream = Upstream(cluster, cluster, groups)
        memory = mirror_memory(settings)
        live = KafkaTopic(topic, record, rooms, upstream, runtime, memory=memory, is_gone=is_gone)
        try:
            yield live
        finally:
            await live.close()


@asynccontextmanager
async def _upstream(settings: Settings, runtime: Runtime, name: str) -> AsyncIterator[Cluster]:
    with _one_line(name):
        async with UpstreamClusters(settings, runtime).open(name) as cluster:
            yield cluster


@contextmanager
def _one_line(name: str) -> Iterator[None]:
    try:
        yield
    except (UnknownUpstream, SourceUnsuitable, FenceRefused) as error:
        raise MigrationRefused(str(error)) from error
    except RequestFailed as error:
        text = f"upstream {name}: {error}"
        if error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            text += ": the migrator's user needs ALTER and DESCRIBE on the source's cluster"
        elif error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            text += ": the migrator's user needs READ, WRITE, DESCRIBE and DESCRIBE_CONFIGS on the topic"
        raise MigrationRefused(text) from error
    except ClientError as error:
        raise MigrationRefused(f"upstream {name} cannot be reached: {error}") from error
