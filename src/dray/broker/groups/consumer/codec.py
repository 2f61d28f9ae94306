"""A KIP-848 group as it is stored: everything the next coordinator needs, and no timers.

A large group is stored often, since each member's step is a change. So a member is encoded once, as long as
it does not change, and storing the group is joining what is there. Format 1, behind the version byte:

    int32 epoch, int32 assignment epoch
    array of topics:    string name, 16 bytes id, int32 partitions
    array of patterns:  string pattern, nullable array of string names
    array of subscriptions: array of string names
    array of members:   number of the subscription, then see `_member`

Strings, arrays and numbers are those of Kafka's compact encodings, read by the same bounded readers. Most
members ask for the same topics, and most targets are what is assigned already: neither is written twice.
"""

from __future__ import annotations

from operator import attrgetter
from struct import Struct
from typing import Final

from dray.broker.groups.assignors import NOTHING, Assignment
from dray.broker.groups.consumer.state import ConsumerGroup, Member, MemberState, TopicShape, assembled
from dray.broker.groups.cursor import Cursor, read_whole
from dray.kafka.protocol.wire import (
    make_uuid,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
    write_numbers,
    write_uvarint,
)
from dray.metadata.values import seal, unseal

GROUP_FORMAT: Final = 1

_EPOCHS = Struct(">ii")
_PARTITIONS = Struct(">i")
_PROGRESS = Struct(">iiB?")
_TIMEOUT = Struct(">i")


def encode_group(group: ConsumerGroup) -> bytes:
    out = bytearray(_EPOCHS.pack(group.epoch, group.assignment_epoch))
    write_compact_count(out, len(group.topics))
    for name, shape in sorted(group.topics.items()):
        write_compact_string(out, name)
        out += shape.topic_id.bytes + _PARTITIONS.pack(shape.partitions)
    write_compact_count(out, len(group.patterns))
    for pattern, names in sorted(group.patterns.items()):
        write_compact_string(out, pattern)
        if names is None:
            out.append(0)
        else:
            _write_strings(out, names)
    subscriptions: dict[frozenset[str], int] = {}
    for member in group.members.values():
        subscriptions.setdefault(member.topic_names, len(subscriptions))
    write_compact_count(out, len(subscriptions))
    for names in subscriptions:
        _write_strings(out, names)
    write_compact_count(out, len(group.members))
    for member in group.members.values():
        write_uvarint(out, subscriptions[member.topic_names])
        out += _stored(member)
    return seal(GROUP_FORMAT, bytes(out))


def decode_group(group_id: str, value: bytes) -> ConsumerGroup:
    what = f"consumer group '{group_id}'"
    _, body = unseal(what, value, GROUP_FORMAT)
    return read_whole(what, body, lambda cursor: _group(cursor, group_id))


def _stored(member: Member) -> bytes:
    if member.stored is None:
        object.__setattr__(member, "stored", _member(member))
    assert member.stored is not None
    return member.stored


def _member(member: Member) -> bytes:
    out = bytearray()
    write_compact_string(out, member.member_id)
    write_compact_nullable_string(out, member.instance_id)
    write_compact_nullable_string(out, member.rack_id)
    write_compact_string(out, member.client_id)
    write_compact_string(out, member.client_host)
    out += _TIMEOUT.pack(member.rebalance_timeout_ms)
    write_compact_nullable_string(out, member.topic_regex)
    write_compact_nullable_string(out, member.server_assignor)
    settled = member.target is member.assigned or member.target == member.assigned
    out += _PROGRESS.pack(member.epoch, member.previous_epoch, member.state, settled)
    _write_assignment(out, member.assigned)
    _write_assignment(out, member.pending)
    if not settled:
        _write_assignment(out, member.target)
    return bytes(out)


def _write_strings(out: bytearray, strings: frozenset[str]) -> None:
    write_compact_count(out, len(strings))
    for string in sorted(strings):
        write_compact_string(out, string)


def _write_assignment(out: bytearray, assignment: Assignment) -> None:
    write_compact_count(out, len(assignment))
    for topic_id in sorted(assignment, key=attrgetter("int")):
        partitions = sorted(assignment[topic_id])
        out += topic_id.bytes
        write_compact_count(out, len(partitions))
        write_numbers(out, "i", partitions)


def _group(cursor: Cursor, group_id: str) -> ConsumerGroup:
    epoch, assignment_epoch = cursor.fixed(_EPOCHS)
    topics = {}
    for _ in range(cursor.count(21)):
        name = cursor.string()
        topic_id = make_uuid(cursor.raw(16))
        (partitions,) = cursor.fixed(_PARTITIONS)
        topics[name] = TopicShape(topic_id, partitions)
    patterns = {}
    for _ in range(cursor.count(2)):
        pattern = cursor.string()
        count = cursor.nullable_count(1)
        patterns[pattern] = None if count < 0 else frozenset(cursor.string() for _ in range(count))
    subscriptions = [
        frozenset(cursor.string() for _ in range(cursor.count(1))) for _ in range(cursor.count(1))
    ]
    members = [_read_member(cursor, subscriptions) for _ in range(cursor.count(24))]
    return assembled(group_id, epoch, assignment_epoch, members, topics, patterns)


def _read_member(cursor: Cursor, subscriptions: list[frozenset[str]]) -> Member:
    subscription = cursor.unsigned()
    member_id = cursor.string()
    instance_id = cursor.nullable_string()
    rack_id = cursor.nullable_string()
    client_id = cursor.string()
    client_host = cursor.string()
    (rebalance_timeout_ms,) = cursor.fixed(_TIMEOUT)
    topic_regex = cursor.nullable_string()
    server_assignor = cursor.nullable_string()
    epoch, previous_epoch, state, settled = cursor.fixed(_PROGRESS)
    assigned = _assignment(cursor)
    pending = _assignment(cursor)
    return Member(
        member_id=member_id,
        instance_id=instance_id,
        rack_id=rack_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=rebalance_timeout_ms,
        topic_names=subscriptions[subscription],
        topic_regex=topic_regex,
        server_assignor=server_assignor,
        epoch=epoch,
        previous_epoch=previous_epoch,
        state=MemberState(state),
        assigned=assigned,
        pending=pending,
        target=assigned if settled else _assignment(cursor),
    )


def _assignment(cursor: Cursor) -> Assignment:
    count = cursor.count(18)
    if not count:
        return NOTHING
    assignment = {}
    for _ in range(count):
        topic_id = make_uuid(cursor.raw(16))
        assignment[topic_id] = frozenset(cursor.int32s(cursor.count(4)))
    return assignment
