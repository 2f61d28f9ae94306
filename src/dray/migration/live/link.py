"""The link of a live topic: planned (its partitions at the source, who uses it, what to mind), and laid down.

Where no tier of the topic is attached, all that is needed is in the record from the start, so that any
process may go on with it, without the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from dray.kafka.client.cluster import Cluster
from dray.kafka.client.errors import ClientError, RequestFailed
from dray.kafka.protocol import ZERO_UUID, ErrorCode
from dray.kafka.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from dray.kafka.protocol.messages.describe_producers import DescribeProducersRequest
from dray.kafka.protocol.messages.list_transactions import ListTransactionsRequest
from dray.log.origins import CLASSIC, epoch_above
from dray.log.outside_table import OWN_STORE
from dray.migration.attach.found import MigrationRefused
from dray.migration.attach.steps import Attacher
from dray.migration.entries.lay_down import AttachedStream, AttachRefused, lay_down
from dray.migration.live.followed_configs import source_configs
from dray.migration.live.steps import LiveOrigin, live_fields
from dray.migration.record import NO_TIER, MigrationLost, MigrationRecord, MigrationState
from dray.migration.source.source import SourceEnd, SourceTopic, all_of
from dray.migration.source.source_groups import SourceGroups, groups_left

HOUR_MS: Final = 3_600_000
SLOW_BYTES_A_SECOND: Final = 20 << 20
"""The bytes a second that a mirror reads at least, for the comparison with the source's retention."""

MOST_NAMED: Final = 10
RETENTION_MS: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
OLDEST_KAFKA: Final = "3.0"


class SourceUnsuitable(Exception):
    """The topic cannot be linked. One line says why, and what to do."""


@dataclass(frozen=True, slots=True)
class LinkPlan:
    topic: str
    topic_id: UUID
    """All zeros where the source has no ids."""
    ends: Mapping[int, SourceEnd]
    sizes: Mapping[int, int] | None
    """Bytes of each partition on the brokers' disks; None where the source does not say it."""
    groups: Sequence[str]
    transactional: Sequence[str]
    """The producers that have written transactions to it."""
    notes: Sequence[str]
    assigning: Sequence[str] = ()
    """Those of the groups whose consumers assign partitions to themselves."""

    @property
    def epoch(self) -> int:
        return max((end.leadership.epoch for end in self.ends.values()), default=0)

    @property
    def size(self) -> int | None:
        return None if self.sizes is None else sum(self.sizes.values())


async def plan_link(cluster: Cluster, topic: str) -> LinkPlan:
    """Only looks. Raises `SourceUnsuitable`, and the client's errors: also if a partition has no leader."""
    source = SourceTopic(cluster, topic)
    try:
        await source.learn()
    except RequestFailed as failure:
        if failure.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise SourceUnsuitable(f"the source has no topic {topic}, or does not show it to us") from failure
        raise
    count = len(cluster.view.partitions(topic))
    if not count:
        raise SourceUnsuitable(f"the source shows no partition of {topic}: try again")
    await _check_age(cluster, source)
    ends = all_of(await source.measure(range(count)))
    transactional = await source.transactional()
    sizes = await _sizes(cluster, topic, source)
    effective = {name: each.value for name, each in (await source_configs(cluster, topic)).items()}
    groups, of_groups, assigning = await _groups(cluster, topic, count)
    plan = LinkPlan(
        topic,
        cluster.view.topic_ids.get(topic, ZERO_UUID),
        ends,
        sizes,
        groups,
        transactional,
        (),
        assigning,
    )
    return replace(plan, notes=[*notes_on(plan, effective), *of_groups])


async def source_starts(cluster: Cluster, plan: LinkPlan) -> list[int]:
    """The present starts of the partitions. Raises `SourceUnsuitable` if it is another topic by now."""
    source = SourceTopic(cluster, plan.topic)
    await source.learn()
    if (source.topic_id or ZERO_UUID, len(source.partitions)) != (plan.topic_id, len(plan.ends)):
        raise SourceUnsuitable(f"topic {plan.topic} was changed at the source meanwhile: try again")
    return list(all_of(await source.starts(range(len(plan.ends)))).values())


def notes_on(plan: LinkPlan, effective: Mapping[str, str]) -> list[str]:
    """Notes that an operator should read before it begins."""
    notes = []
    if "compact" in effective.get("cleanup.policy", ""):
        notes.append(
            "the source compacts it by key: what it drops before it is mirrored is not here either; behind "
            "the switch Dray's compactor does it"
        )
    notes += [
        f"{name} is a transactional producer: Dray takes no transactions, so it has to stop, or be changed, "
        "before the switch"
        for name in plan.transactional
    ]
    if plan.assigning:
        notes.append(
            f"consumers of {named(plan.assigning)} assign partitions to themselves: stop them before the "
            "switch, and start them here afterwards; what they commit at the source behind it is lost"
        )
    notes += _retention_notes(plan, effective)
    if plan.topic_id == ZERO_UUID:
        notes.append("the source gives topics no ids: the topic gets a fresh one")
    if any(not end.is_settled for end in plan.ends.values()):
        notes.append(
            "records arrive at the source right now: the newest are mirrored once its replicas have them, "
            "and those of a transaction once it has ended"
        )
    return notes


def _retention_notes(plan: LinkPlan, effective: Mapping[str, str]) -> list[str]:
    """The mirror begins with the oldest records, which are the next that the source deletes."""
    limits = {name: effective.get(name, "-1") for name in (RETENTION_MS, RETENTION_BYTES)}
    set_ones = [f"{name}={value}" for name, value in limits.items() if value.isdigit()]
    if not set_ones or "delete" not in effective.get("cleanup.policy", "delete"):
        return []
    note = (
        f"the source deletes its oldest records meanwhile ({', '.join(set_ones)}): what it deletes before it "
        "is mirrored is not here either, and the log begins later"
    )
    needed_ms = (plan.size or 0) * 1000 // SLOW_BYTES_A_SECOND
    if limits[RETENTION_MS].isdigit() and int(limits[RETENTION_MS]) < max(HOUR_MS, 2 * needed_ms):
        note += "; that may be much of it: raise retention.ms there until the mirror has caught up"
    return [note]


async def _check_age(cluster: Cluster, source: SourceTopic) -> None:
    for leadership in source.leaderships.values():
        async with cluster.broker(cluster.view.brokers[leadership.leader]) as broker:
            for asked in (DescribeProducersRequest, ListTransactionsRequest):
                try:
                    broker.version_for(asked.API_KEY)
                except ClientError as error:
                    raise SourceUnsuitable(
                        f"the source is too old: {error}; Kafka has it since {OLDEST_KAFKA}, and a switch "
                        "needs it"
                    ) from error
        return  # one is as old as the others


async def _sizes(cluster: Cluster, topic: str, source: SourceTopic) -> dict[int, int] | None:
    """As the leaders have them on their disks."""
    found: dict[int, int] = {}
    by_leader: dict[int, list[int]] = {}
    for partition, leadership in source.leaderships.items():
        by_leader.setdefault(leadership.leader, []).append(partition)
    for leader, partitions in by_leader.items():
        request = DescribeLogDirsRequest(
            topics=[DescribableLogDirTopic(topic=topic, partitions=sorted(partitions))]
        )
        try:
            async with cluster.broker(cluster.view.brokers[leader]) as broker:
                response = await broker.request(request)
        except (ClientError, RequestFailed, KeyError):
            return None
        if response.error_code:
            return None  # it takes DESCRIBE on the cluster
        for directory in response.results:
            for answered in directory.topics:
                for each in answered.partitions:
                    if not each.is_future_key:
                        found[each.partition_index] = each.partition_size
    return found


async def _groups(cluster: Cluster, topic: str, partitions: int) -> tuple[list[str], list[str], list[str]]:
    """Those that have committed offsets of it, what is to be said about others, and which of the first never
    had members."""
    source = SourceGroups(cluster)
    listed = await source.listed()
    left = groups_left(listed)
    asked = [group_id for group_id in listed if group_id not in left]
    committed, refused = await source.committed(asked, {topic: range(partitions)})
    notes = []
    if left:
        notes.append(
            f"groups that are not followed: {named(f'{name} ({why})' for name, why in left.items())}"
        )
    unread = [f"{name} ({refused.get(name, 'no answer')})" for name in asked if name not in committed]
    if unread:
        notes.append(
            "groups whose offsets cannot be read wait here until they can, whatever they read: "
            f"{named(unread)}. The migrator's user needs DESCRIBE on groups"
        )
    found = sorted(name for name, offsets in committed.items() if offsets)
    return found, notes, [name for name in found if listed[name].assigns]


def named(names: Iterable[str]) -> str:
    found = sorted(names)
    more = len(found) - MOST_NAMED
    return ", ".join(found[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


# --- laying it down


async def link_topic(
    attacher: Attacher,
    topic: str,
    origin: LiveOrigin,
    starts: Sequence[int],
    config: Mapping[str, str],
    source: str,
) -> MigrationRecord:
    """A topic that is mirrored from these offsets on. May be called again after any failure: what was begun
    goes on with what it was begun with. Raises `MigrationRefused`."""
    migrations, runtime = attacher.migrations, attacher.runtime
    if (
        await attacher.topics.refresh(topic, barrier=True) is not None
        and await migrations.read(topic) is None
    ):
        raise MigrationRefused(f"topic {topic} exists here already, and was not linked")
    attacher.topics.check_attach(
        topic, origin.topic_id, len(starts)
    )  # or it would be stuck when it is published
    new = MigrationRecord(
        MigrationState.ATTACHING,
        runtime.uuid(),
        origin.topic_id if origin.topic_id.int else runtime.uuid(),
        NO_TIER,
        source,
        OWN_STORE,
        "",
        epoch_above(origin.epoch),
        len(starts),
        (),
        tuple((start, start) for start in starts),
        config,
        runtime.wall_ms(),
        **live_fields(origin),
    )
    record = await attacher.begin(topic, new)
    if record.state is MigrationState.ABORTING:
        raise MigrationRefused(f"topic {topic}: an abort is under way: drayd migrate abort {topic}")
    if record.upstream != origin.upstream or record.has_tier:
        raise MigrationRefused(
            f"topic {topic} was begun otherwise: drayd migrate status {topic}, then drayd migrate abort "
            f"{topic}"
        )
    attacher.reached("begun")
    if record.state is MigrationState.ATTACHING:
        record = await attacher.take_streams(topic, record)
        try:
            for stream, (start, end) in zip(record.streams, record.bounds, strict=True):
                attached = AttachedStream((), start, end, record.leader_epoch, boundary=CLASSIC)
                await lay_down(attacher.streams, stream, attached)
        except AttachRefused:
            await attacher.sweep(record)  # an abort came in between: what was laid down after it goes too
            raise MigrationLost(f"topic {topic}: the migration was aborted meanwhile") from None
        attacher.reached("laid down")
    return await attacher.publish(topic, record)
