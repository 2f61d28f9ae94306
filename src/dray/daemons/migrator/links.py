"""Live migrations, from the config to the rooms that do them. Whatever goes wrong is one line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Final

from dray.base.runtime import Runtime
from dray.broker.security.acls.decision import AclIndex
from dray.broker.topics.configs import check_configs
from dray.broker.topics.errors import TopicError
from dray.broker.topics.names import is_internal
from dray.daemons.config import Settings
from dray.daemons.migrator import migration
from dray.daemons.migrator.source_looks import SourcePatience, known_ends
from dray.daemons.migrator.source_security import (
    HeldHere,
    SourceAcls,
    SourceUsers,
    acls_here,
    acls_in,
    carry_over,
    carry_quotas,
    compare_acls,
    compare_users,
    held_here,
    held_in,
)
from dray.daemons.migrator.upstream_clusters import CLIENT_ID, UnknownUpstream, UpstreamClusters
from dray.kafka.client.cluster import Cluster
from dray.kafka.client.errors import ClientError, RequestFailed
from dray.kafka.protocol import ErrorCode
from dray.migration.attach.aiven_tiered import KeyRing
from dray.migration.attach.found import MigrationRefused
from dray.migration.attach.inventory import Counted, Progress
from dray.migration.attach.plan import AttachPlan
from dray.migration.attach.steps import AttachOrder
from dray.migration.groups.copies import GroupCopies
from dray.migration.groups.copy import CopyState
from dray.migration.groups.rounds import groups_of
from dray.migration.live.followed_configs import compare_configs
from dray.migration.live.link import LinkPlan, SourceUnsuitable, link_topic, plan_link, source_starts
from dray.migration.live.migration import LiveMigration
from dray.migration.live.moving_topic import MovingTopic, SourceCluster, UsersLook, look_for_users
from dray.migration.live.steps import LiveOrigin, request_switch
from dray.migration.live.switch import expected_pause
from dray.migration.mirror.switching import boundary_of
from dray.migration.record import MigrationRecord, MigrationState
from dray.migration.source.fences import ACL_FENCE, SIZE_FENCE, FenceRefused, NoAuthorizer, WriterFence
from dray.migration.source.source import SourceTopic
from dray.migration.source.source_groups import SourceGroups, groups_left
from dray.migration.status import status_of

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
    open_to_all: bool = False
    """Though the source asks who may use it, and Dray does not."""
    carries_acls: bool = False
    carries_quotas: bool = False


@dataclass(frozen=True, slots=True)
class LinkPreview:
    plan: LinkPlan
    tier: AttachPlan | None
    configs: dict[str, str]
    """Those of the source's that Dray knows."""
    acls: SourceAcls = field(default_factory=SourceAcls)
    source_users: SourceUsers = field(default_factory=SourceUsers)


def preview(
    settings: Settings,
    request: LinkRequest,
    progress: Progress | None = None,
    said: Callable[[str], None] = _unsaid,
) -> LinkPreview:
    """Only looks. `said` gets a line when the source makes us wait."""

    async def work(runtime: Runtime) -> LinkPreview:
        patience = SourcePatience(request.topic, runtime, said)
        async with (
            _upstream(settings, runtime, request.upstream) as cluster,
            acls_here(settings, runtime) as here,
            held_here(settings, runtime) as held,
        ):
            return await patience.ask(
                cluster, lambda: _look(settings, request, cluster, runtime, progress, here, held)
            )

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
            acls_in(rooms.stores.metadata, runtime) as acls,
            held_in(rooms.stores.metadata, runtime) as held,
        ):
            interval = settings.upstream.group_interval
            groups = rooms.group_rounds(request.upstream, cluster, runtime, interval)
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
            found = await patience.ask(
                cluster, lambda: _look(settings, request, cluster, runtime, progress, acls.index, held)
            )
            found.acls.check(topic, open_to_all=request.open_to_all, carries=request.carries_acls)
            found.source_users.check(carries=request.carries_quotas)
            if not approve(found):
                return None
            if request.carries_acls:
                await carry_over(acls, found.acls.missing)
            if request.carries_quotas:
                await carry_quotas(rooms.stores.metadata, runtime, found.source_users.quotas)
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
    settings: Settings,
    request: LinkRequest,
    cluster: Cluster,
    runtime: Runtime,
    progress: Progress | None,
    here: AclIndex,
    held: HeldHere,
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
            wanted = replace(wanted, partitions=len(plan.ends))
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
    acls = await compare_acls(settings, cluster, request.topic, plan.groups, here)
    users = await compare_users(cluster, held)
    return LinkPreview(replace(plan, notes=notes), tier, dict(configs.wanted), acls, users)


def _check_tier(plan: LinkPlan, tier: AttachPlan) -> list[str]:
    """The mirror goes on where the tier ends: so it has to end where the source still has records."""
    if tier.refused:
        raise MigrationRefused(str(tier.refused[0]))
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


def names_at(
    settings: Settings, upstream: str, pattern: str, said: Callable[[str], None] = _unsaid
) -> list[str]:
    """The topics of the source that a pattern of the shell's kind names. Kafka's own are none of them."""

    async def work(runtime: Runtime) -> list[str]:
        async with _upstream(settings, runtime, upstream) as cluster:
            patience = SourcePatience(pattern, runtime, said)
            answer = await patience.ask(cluster, lambda: cluster.learn(None))
        names = [each.name or "" for each in answer.topics if not each.is_internal]
        return sorted(name for name in names if fnmatchcase(name, pattern) and not is_internal(name))

    return migration.run(work)


def linked(settings: Settings, pattern: str = "*") -> dict[str, MigrationState]:
    """The topics that are linked here, or were, and are not deleted since."""

    async def work(runtime: Runtime) -> dict[str, MigrationState]:
        async with migration.opened(settings, runtime) as rooms:
            records = await rooms.attacher.migrations.read_all()
            found: dict[str, MigrationState] = {}
            for name, record in sorted(records.items()):
                topic = await rooms.topics.refresh(name)
                is_there = topic is not None and topic.topic_id == record.topic_id
                if record.is_live and is_there and fnmatchcase(name, pattern):
                    found[name] = record.state
            return found

    return migration.run(work)


# --- switch


@dataclass(frozen=True, slots=True)
class SwitchPreview:
    record: MigrationRecord
    lags: dict[int, int] = field(default_factory=dict)
    """Records that the mirror still has to bring, by partition."""
    transactions: list[str] = field(default_factory=list)
    """Those that are open at the source, of any topic."""
    users: UsersLook = field(default_factory=UsersLook)
    pause_seconds: float = 0.0
    """For how long writers wait, once the mirror has caught up."""
    acls: SourceAcls = field(default_factory=SourceAcls)
    source_users: SourceUsers = field(default_factory=SourceUsers)
    fence: str = ACL_FENCE

    @property
    def lag(self) -> int:
        return sum(self.lags.values())


def switch(
    settings: Settings,
    topic: str,
    fence: str | None,
    approve: Callable[[SwitchPreview], bool],
    said: Callable[[str], None] = _unsaid,
    *,
    allows: Collection[str] = (),
    carries_acls: bool = False,
    carries_quotas: bool = False,
) -> MigrationRecord | None:
    """Ask for it: a migrator does it. None where it was not approved. Without `fence`: an ACL where the
    source has an authorizer, else its limit of sizes."""

    async def work(runtime: Runtime) -> MigrationRecord | None:
        raised = fence or ACL_FENCE
        async with (
            migration.opened(settings, runtime) as rooms,
            acls_in(rooms.stores.metadata, runtime) as acls,
            held_in(rooms.stores.metadata, runtime) as held,
        ):
            migrations = rooms.attacher.migrations
            record = await migrations.read(topic)
            if record is None or not record.is_live:
                raise MigrationRefused(f"topic {topic} is not linked: drayd migrate link {topic}")
            if record.state is MigrationState.MIRRORING:
                async with _live_topic(settings, rooms, topic, record, runtime) as live:
                    patience = SourcePatience(topic, runtime, said)
                    found = await preview_switch(live, record, fence, patience)
                    raised = found.fence
                    groups = await groups_of(_copies(rooms, runtime, record.upstream), topic)
                    named = {group for each in groups.states.values() for group in each}
                    beside = await patience.ask(
                        live.control, lambda: compare_acls(settings, live.control, topic, named, acls.index)
                    )
                    users = await patience.ask(live.control, lambda: compare_users(live.control, held))
                beside.check(topic, open_to_all=True, carries=carries_acls)
                users.check(carries=carries_quotas)
                if not approve(replace(found, acls=beside, source_users=users)):
                    return None
                if carries_acls:
                    await carry_over(acls, beside.missing)
                if carries_quotas:
                    await carry_quotas(rooms.stores.metadata, runtime, users.quotas)
            return await request_switch(migrations, topic, raised, allows)

    return migration.run(work)


async def preview_switch(
    live: MovingTopic, record: MigrationRecord, fence: str | None, patience: SourcePatience
) -> SwitchPreview:
    """The steps that only look come first: they are repeated while a leader is missing, and the check of a
    fence writes to the source."""

    async def checked(kind: str) -> tuple[str, WriterFence]:
        undo = await live.before_fence(kind)
        raised = live.fence(kind, undo)
        await raised.check(live.source)
        return kind, raised

    async def look() -> SwitchPreview:
        await live.source.learn()
        look = await live.look()
        transactions = await live.source.open_transactions()
        users = await live.users()
        try:
            kind, raised = await checked(fence or ACL_FENCE)
        except NoAuthorizer:
            if fence is not None:
                raise
            kind, raised = await checked(SIZE_FENCE)
        pause = expected_pause(
            look.source_seconds, look.here_seconds, record.partitions, raised.moment_seconds
        )
        return SwitchPreview(record, look.lags, transactions, users, pause, fence=kind)

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
    missing: int | None = None
    """Segments that are not where they were; None where nobody looked."""
    unseen: str = ""
    users: UsersLook = field(default_factory=UsersLook)
    """Of the topic at its source. They are not looked for by a watch."""


def live_status(settings: Settings, topic: str) -> LiveStatus | None:
    """None for a topic that is not linked."""

    async def work(runtime: Runtime) -> LiveStatus | None:
        async with migration.opened(settings, runtime) as rooms:
            found = await _status(settings, rooms, topic, runtime, looks_for_users=True)
            if found is None or not found.record.has_tier:
                return found
            known = await status_of(rooms.streams, topic, found.record, exists=True, stores=rooms.segments)
            return replace(found, borrowed=known.borrowed, missing=known.missing, unseen=known.unseen)

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
    settings: Settings,
    rooms: migration.Rooms,
    topic: str,
    runtime: Runtime,
    *,
    looks_for_users: bool = False,
) -> LiveStatus | None:
    record = await rooms.attacher.migrations.read(topic)
    if record is None or not record.is_live:
        return None
    ends: dict[int, int] = {}
    left: dict[str, str] = {}
    users = UsersLook()
    trouble = ""
    if record.is_classic or record.state is MigrationState.SWITCHED:
        # Once it is switched, groups wait for the source, which may be gone by then.
        try:
            async with _upstream(settings, runtime, record.upstream or "") as cluster:
                source = SourceTopic(cluster, topic)
                ends, trouble = await known_ends(source)
                if looks_for_users and record.is_classic and not trouble:
                    users = await look_for_users(cluster, source, record.partitions)
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
    return LiveStatus(topic, record, partitions, trouble, groups.states, groups.unread, left, users=users)


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
                    made = LiveMigration(topic, migrations, live, runtime, migration.live_settings(settings))
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
) -> AsyncIterator[MovingTopic]:
    name = record.upstream or ""
    with _one_line(name):
        clusters = UpstreamClusters(settings, runtime)
        cluster = Cluster([], clusters.dialer(name, CLIENT_ID), runtime) if is_gone else clusters.open(name)
        groups = rooms.group_rounds(name, cluster, runtime, settings.upstream.group_interval)
        source = SourceCluster(cluster, cluster, None, groups)
        memory = migration.mirror_memory(settings)
        live = MovingTopic(topic, record, rooms.here, source, runtime, memory=memory, is_gone=is_gone)
        try:
            yield live
        finally:
            await live.close()
            await source.close()


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
