"""A group as ConsumerGroupDescribe shows it."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from dray.groups.assignors import Assignment
from dray.groups.consumer.reconciliation import chosen_assignor
from dray.groups.consumer.state import ConsumerGroup, ConsumerGroupSettings, GroupState, Member, TopicsView


class TopicPartitions(NamedTuple):
    topic_id: UUID
    topic_name: str
    partitions: tuple[int, ...]


class ConsumerMemberDescription(NamedTuple):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str
    """Empty where there is none, as Kafka has it."""

    assignment: tuple[TopicPartitions, ...]
    target_assignment: tuple[TopicPartitions, ...]


class ConsumerGroupDescription(NamedTuple):
    group_id: str
    state: GroupState
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: tuple[ConsumerMemberDescription, ...]


def description_of(
    group: ConsumerGroup, view: TopicsView, settings: ConsumerGroupSettings
) -> ConsumerGroupDescription:
    return ConsumerGroupDescription(
        group.group_id,
        group.state,
        group.epoch,
        group.assignment_epoch,
        chosen_assignor(group, settings),
        tuple(_member(group.members[member_id], view) for member_id in sorted(group.members)),
    )


def _member(member: Member, view: TopicsView) -> ConsumerMemberDescription:
    return ConsumerMemberDescription(
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.client_host,
        tuple(sorted(member.topic_names)),
        member.topic_regex or "",
        _by_name(member.assigned, view),
        _by_name(member.target, view),
    )


def _by_name(assignment: Assignment, view: TopicsView) -> tuple[TopicPartitions, ...]:
    """Without topics that are gone: they have no name any more."""
    named = [
        TopicPartitions(topic_id, name, tuple(sorted(partitions)))
        for topic_id, partitions in assignment.items()
        if (name := view.name_of(topic_id)) is not None
    ]
    return tuple(sorted(named, key=lambda topic: topic.topic_name))
