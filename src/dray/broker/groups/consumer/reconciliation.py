"""How one member comes from what it has to what it should have; and how that target is computed.

A member gives up first and takes afterwards. It stays at its epoch while it still holds what it has to
give up; then it goes to the epoch of the target, with all of the target that no other member holds, and picks
up the rest as others give it up. So no partition has two owners, and no member waits for the whole group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final
from uuid import UUID

from dray.broker.groups.assignors import ASSIGNORS, NOTHING, Assignment, MemberSubscription
from dray.broker.groups.consumer.events import OwnedPartitions
from dray.broker.groups.consumer.state import ConsumerGroup, ConsumerGroupSettings, Member, MemberState
from dray.broker.groups.consumer.subscription import all_alike, subscribed_topic_ids


def reconciled(
    member: Member,
    assignment_epoch: int,
    owned: Mapping[UUID, frozenset[int]],
    subscribed: frozenset[UUID],
    reported: OwnedPartitions | None,
    subscription_changed: bool,
) -> Member:
    """The next state of a member; the same object where it has to stay as it is.

    `owned` is what anyone in the group holds, this member included. `reported` is what the client says it
    holds, None where it did not say.
    """
    if member.state is MemberState.STABLE and member.epoch == assignment_epoch:
        return _narrowed(member, subscribed, reported) if subscription_changed else member
    if member.state is MemberState.UNREVOKED and still_holds(reported, member.pending):
        return _narrowed(member, subscribed, reported) if subscription_changed else member
    following = _next_step(member, assignment_epoch, owned, subscribed, reported)
    return member if following == member else following


def still_holds(reported: OwnedPartitions | None, partitions: Assignment) -> bool:
    """Whether the client may still hold any of these. One that does not say may hold them all."""
    if reported is None:
        return True
    return any(not partitions.get(topic_id, _NONE).isdisjoint(held) for topic_id, held in reported)


def holds_only(reported: OwnedPartitions | None, partitions: Assignment) -> bool:
    """Whether the client says what it holds, and all of that is among these."""
    if reported is None:
        return False
    return all(
        topic_id in partitions and partitions[topic_id].issuperset(held) for topic_id, held in reported
    )


def _next_step(
    member: Member,
    assignment_epoch: int,
    owned: Mapping[UUID, frozenset[int]],
    subscribed: frozenset[UUID],
    reported: OwnedPartitions | None,
) -> Member:
    kept: dict[UUID, frozenset[int]] = {}
    revoked: dict[UUID, frozenset[int]] = {}
    added: dict[UUID, frozenset[int]] = {}
    waits = False
    for topic_id in {**member.target, **member.assigned}:
        # A target may be older than the subscription: what the member no longer asks for, it must not get.
        target = member.target.get(topic_id, _NONE) if topic_id in subscribed else _NONE
        assigned = member.assigned.get(topic_id, _NONE)
        if keep := assigned & target:
            kept[topic_id] = keep
        if revoke := assigned - target:
            revoked[topic_id] = revoke
        wanted = target - assigned
        # A partition that the member itself was to give up, and has, is free for it as for anyone.
        add = wanted - (owned.get(topic_id, _NONE) - member.pending.get(topic_id, _NONE))
        waits = waits or len(add) < len(wanted)
        if add:
            added[topic_id] = add
    if revoked and still_holds(reported, revoked):
        return replace(
            member,
            state=MemberState.UNREVOKED,
            previous_epoch=member.epoch,
            assigned=kept,
            pending=revoked,
        )
    assigned_now = {
        topic_id: kept.get(topic_id, _NONE) | added.get(topic_id, _NONE) for topic_id in {**kept, **added}
    }
    return replace(
        member,
        state=MemberState.UNRELEASED if waits else MemberState.STABLE,
        previous_epoch=member.epoch,
        epoch=assignment_epoch,
        assigned=_shared(assigned_now, member.target, member.assigned),
        pending=NOTHING,
    )


def _narrowed(member: Member, subscribed: frozenset[UUID], reported: OwnedPartitions | None) -> Member:
    """The member without the topics it no longer asks for, while its target does not know of that yet."""
    dropped = {
        topic_id: partitions for topic_id, partitions in member.assigned.items() if topic_id not in subscribed
    }
    if not dropped:
        return member
    kept = {
        topic_id: partitions for topic_id, partitions in member.assigned.items() if topic_id in subscribed
    }
    pending = dict(member.pending)
    for topic_id, partitions in dropped.items():
        pending[topic_id] = pending.get(topic_id, _NONE) | partitions
    if still_holds(reported, pending):
        return replace(member, state=MemberState.UNREVOKED, assigned=kept, pending=pending)
    return replace(member, assigned=kept)


def _shared(assignment: Assignment, *others: Assignment) -> Assignment:
    """One of the others where it is equal: a settled member then holds its partitions once, not twice."""
    return next((other for other in others if other == assignment), assignment)


_NONE: Final[frozenset[int]] = frozenset()


def chosen_assignor(group: ConsumerGroup, settings: ConsumerGroupSettings) -> str:
    """The one that most members name, else the first that is configured."""
    votes = Counter(
        member.server_assignor for member in group.members.values() if member.server_assignor is not None
    )
    candidates = [name for name in ASSIGNORS if votes[name] and name in settings.assignors]
    return max(candidates, key=votes.__getitem__, default=settings.assignors[0])


def with_new_targets(group: ConsumerGroup, settings: ConsumerGroupSettings) -> ConsumerGroup:
    """The group with targets for its present epoch."""
    topic_ids: dict[tuple[frozenset[str], str | None], frozenset[UUID]] = {}
    subscriptions: dict[str, MemberSubscription] = {}
    for member_id, member in group.members.items():
        asked = (member.topic_names, member.topic_regex)
        if asked not in topic_ids:
            topic_ids[asked] = subscribed_topic_ids(group, member)
        subscriptions[member_id] = MemberSubscription(
            topic_ids[asked], member.instance_id, member.rack_id, member.target
        )
    targets = ASSIGNORS[chosen_assignor(group, settings)](
        subscriptions,
        {shape.topic_id: shape.partitions for shape in group.topics.values()},
        same_subscription=all_alike(group),
    )
    return group.with_targets(targets, group.epoch)
