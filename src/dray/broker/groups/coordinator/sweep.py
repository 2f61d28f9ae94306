"""A sweep of offsets that have expired or whose topic is gone, then of groups without any.

Best effort, on the broker that looks after a group, and for a group without a coordinator, on the one that
would. An offset is only deleted if it is still the one that was judged, and a group only in a moment when
nothing is under way in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING

import structlog

from dray.broker.groups import classic, consumer
from dray.broker.groups.coordinator.active import ActiveGroup
from dray.broker.groups.coordinator.contract import GroupUnavailable
from dray.broker.groups.coordinator.ledger import Forget, Place
from dray.broker.groups.coordinator.machines import State
from dray.broker.groups.offsets import CommittedOffset, ExpiryRule, expired_offsets
from dray.broker.topics import Topic, TopicsUnavailable, TopicUnreadable
from dray.kafka.protocol import ZERO_UUID
from dray.metadata import keys
from dray.metadata.contract import MetadataError

if TYPE_CHECKING:
    from dray.broker.groups.coordinator.service import Groups

_log = structlog.get_logger(__name__)


async def sweep_forever(groups: Groups) -> None:
    while True:
        await groups.runtime.sleep(groups.settings.sweep_interval)
        try:
            await sweep(groups)
        except (MetadataError, TopicsUnavailable, GroupUnavailable) as error:
            _log.warning("groups are swept later", error=str(error))


async def sweep(groups: Groups) -> None:
    """One round over all groups that are this broker's to sweep. A group that is in the way of nothing but
    itself (another has taken it, or this build cannot read it) has its turn the next time."""
    held = {group.group_id: group for group in groups.active()}
    for group in held.values():
        await _try_to_sweep(groups, group)
    for group_id in await _unled(groups):
        if group_id in held:
            continue
        try:
            found = await groups.existing(group_id)
        except GroupUnavailable as error:
            _log.info("a group is not swept", group=group_id, error=str(error))
            continue
        if found is not None:
            await _try_to_sweep(groups, found)
            groups.forget(found)


async def _try_to_sweep(groups: Groups, group: ActiveGroup) -> None:
    """An error of one group, foreseen or not, keeps no other from its turn. A store that is away does."""
    try:
        await sweep_group(groups, group)
    except MetadataError:
        raise
    except (TopicsUnavailable, GroupUnavailable) as error:
        _log.warning("a group is swept later", group=group.group_id, error=str(error))
    except Exception as error:
        groups.runtime.background.report("sweep groups", error)


async def sweep_group(groups: Groups, group: ActiveGroup) -> None:
    offsets = group.ledger.offsets()
    rule, now_ms = _rule(group.state), groups.expiry.now_ms()
    judged: set[Place] = set()
    if rule is not None and now_ms is not None:
        expired = expired_offsets(offsets, rule, now_ms, groups.settings.offset_retention_ms)
        unreadable = groups.topics.unreadable()  # whether the group still reads these is not known
        judged.update(place for place in expired if place[0] not in unreadable)
    doubtful = {
        topic
        for (topic, _), offset in offsets.items()
        if (shape := groups.view.shape(topic)) is None or not offset.is_of(shape.topic_id)
    }
    judged.update(await _orphaned(groups, offsets, doubtful))
    if judged:
        await group.ledger.change({place: Forget(offsets[place]) for place in judged})
    await _delete_if_useless(group)


async def forget_topics(groups: Groups, names: frozenset[str]) -> None:
    """Topics are gone: the offsets of the groups that are here go at once, as in Kafka."""
    for group in groups.active():
        offsets = group.ledger.offsets()
        try:
            judged = await _orphaned(groups, offsets, names & {topic for topic, _ in offsets})
            if judged:
                await group.ledger.change({place: Forget(offsets[place]) for place in judged})
        except (TopicsUnavailable, GroupUnavailable) as error:
            _log.info("offsets of deleted topics are left to the sweep", error=str(error))


def _rule(state: State) -> ExpiryRule | None:
    if isinstance(state, classic.ClassicGroup):
        return classic.expiry_rule(state)
    if isinstance(state, consumer.ConsumerGroup):
        group = state
        return ExpiryRule(None, lambda topic: consumer.is_subscribed(group, topic))
    return None


async def _orphaned(
    groups: Groups, offsets: dict[Place, CommittedOffset], names: Collection[str]
) -> list[Place]:
    """Offsets of topics that the store no longer has, or of earlier topics of the same name.

    This broker's memory of topics may be old, so the store is asked; and since an old answer would cost
    offsets, it is asked for what is there now. A topic that is there and cannot be read keeps all of them.
    """
    if not names:
        return []
    try:
        await groups.store.barrier(keys.CLUSTER_DOMAIN)
    except MetadataError as error:
        raise TopicsUnavailable(str(error)) from error
    orphaned = []
    for name in sorted(names):
        try:
            topic = await groups.topics.refresh(name)
        except TopicUnreadable as error:
            _log.warning("offsets of a topic are kept", topic=name, error=str(error))
            continue
        orphaned += [
            place
            for place, offset in offsets.items()
            if place[0] == name and (topic is None or _is_of_an_earlier(topic, offset))
        ]
    return orphaned


def _is_of_an_earlier(topic: Topic, offset: CommittedOffset) -> bool:
    """Offsets in the old format do not name their topic: there the times decide."""
    if offset.topic_id == ZERO_UUID:
        return offset.commit_ms < topic.created_ms
    return not offset.is_of(topic.topic_id)


async def _delete_if_useless(group: ActiveGroup) -> None:
    state = group.state
    if state is None or not group.ledger.is_empty() or not (group.usable() and group.is_idle()):
        return
    # Nothing is under way, so this begins at once: a commit that comes now finds no group, and makes one.
    # One that the group has just allowed, and that has not reached the ledger, is refused.
    future: asyncio.Future[classic.ErrorAnswer] = asyncio.get_running_loop().create_future()
    with group.ledger.closed():
        group.ask(classic.DeleteGroup(future), future)
        await future


async def _unled(groups: Groups) -> list[str]:
    """Groups without a coordinator that this broker would be asked to take."""
    found = []
    for domain in range(groups.domains):
        records = await groups.store.scan(domain, keys.GROUPS, keys.prefix_end(keys.GROUPS))
        leases = await groups.store.scan(domain, keys.GROUP_LEASES, keys.prefix_end(keys.GROUP_LEASES))
        led = {keys.group_of_lease(lease.key) for lease in leases}
        ids = [group_id for record in records if (group_id := keys.group_of(record.key)) is not None]
        found += [group_id for group_id in ids if group_id not in led and groups.is_candidate(group_id)]
    return found
