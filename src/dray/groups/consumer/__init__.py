"""KIP-848 consumer groups, without I/O: `handle` is the coordinator, the rest is what it speaks of."""

from dray.groups.consumer.codec import decode_group, encode_group
from dray.groups.consumer.conversion import classic_join_fault, heartbeat_to_classic_fault
from dray.groups.consumer.description import (
    ConsumerGroupDescription,
    ConsumerMemberDescription,
    TopicPartitions,
    description_of,
)
from dray.groups.consumer.events import (
    Answer,
    BatchResult,
    CancelTimer,
    Effect,
    Event,
    Heartbeat,
    HeartbeatAnswer,
    OwnedPartitions,
    PatternsResolved,
    Refusal,
    RemovalAnswer,
    RemoveMembers,
    ResolvePatterns,
    Result,
    ScheduleTimer,
    TimerFired,
    TimerKind,
)
from dray.groups.consumer.heartbeat import count_together, on_heartbeats
from dray.groups.consumer.machine import handle, timers_after_load
from dray.groups.consumer.offsets import commit_fault, deletion_fault, fetch_fault
from dray.groups.consumer.settings import ConsumerGroupSettings
from dray.groups.consumer.state import ConsumerGroup, GroupState, Member, MemberState
from dray.groups.consumer.subscription import is_subscribed
from dray.groups.consumer.topics import TopicShape, TopicsTable, TopicsView

__all__ = [
    "Answer",
    "BatchResult",
    "CancelTimer",
    "ConsumerGroup",
    "ConsumerGroupDescription",
    "ConsumerGroupSettings",
    "ConsumerMemberDescription",
    "Effect",
    "Event",
    "GroupState",
    "Heartbeat",
    "HeartbeatAnswer",
    "Member",
    "MemberState",
    "OwnedPartitions",
    "PatternsResolved",
    "Refusal",
    "RemovalAnswer",
    "RemoveMembers",
    "ResolvePatterns",
    "Result",
    "ScheduleTimer",
    "TimerFired",
    "TimerKind",
    "TopicPartitions",
    "TopicShape",
    "TopicsTable",
    "TopicsView",
    "classic_join_fault",
    "commit_fault",
    "count_together",
    "decode_group",
    "deletion_fault",
    "description_of",
    "encode_group",
    "fetch_fault",
    "handle",
    "heartbeat_to_classic_fault",
    "is_subscribed",
    "on_heartbeats",
    "timers_after_load",
]
