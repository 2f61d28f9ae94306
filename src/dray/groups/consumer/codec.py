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

import struct
from operator import attrgetter
from struct import Struct
from typing import Final

from dray.groups.assignors import NOTHING, Assignment
from dray.groups.consumer.state import ConsumerGroup, Member, MemberState, assembled
from dray.groups.consumer.topics import TopicShape
from dray.metadata.values import ValueCorrupt, seal, unseal
from dray.protocol.wire import (
    make_uuid,
    read_compact_count,
    read_compact_nullable_count,
    read_compact_nullable_string,
    read_compact_string,
    read_numbers,
    read_uvarint,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
    write_numbers,
    write_uvarint,
)

GROUP_FORMAT: Final = 1

_EPOCHS = Struct(">ii")
_SHAPE = Struct(">16si")
_PROGRESS = Struct(">iiB?")
_TIMEOUT = Struct(">i")


def encode_group(group: ConsumerGroup) -> bytes:
    out = bytearray(_EPOCHS.pack(group.epoch, group.assignment_epoch))
    write_compact_count(out, len(group.topics))
    for name, shape in sorted(group.topics.items()):
        write_compact_string(out, name)
        out += _SHAPE.pack(shape.topic_id.bytes, shape.partitions)
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
    try:
        reader = _Reader(body)
        group = reader.group(group_id)
    except (IndexError, struct.error, ValueError) as error:
        raise ValueCorrupt(what, str(error)) from error
    if reader.position != len(body):
        raise ValueCorrupt(what, f"{len(body) - reader.position} bytes follow its end")
    return group


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


class _Reader:
    def __init__(self, body: memoryview) -> None:
        self._body = body
        self.position = 0

    def group(self, group_id: str) -> ConsumerGroup:
        epoch, assignment_epoch = _EPOCHS.unpack_from(self._body, 0)
        self.position = _EPOCHS.size
        topics = {}
        for _ in range(self._count(21)):
            name = self._string()
            raw, partitions = _SHAPE.unpack_from(self._body, self.position)
            self.position += _SHAPE.size
            topics[name] = TopicShape(make_uuid(raw), partitions)
        patterns = {}
        for _ in range(self._count(2)):
            pattern = self._string()
            patterns[pattern] = self._nullable_names()
        subscriptions = [self._names() for _ in range(self._count(1))]
        members = [self._member(subscriptions) for _ in range(self._count(24))]
        return assembled(group_id, epoch, assignment_epoch, members, topics, patterns)

    def _member(self, subscriptions: list[frozenset[str]]) -> Member:
        subscription, self.position = read_uvarint(self._body, self.position)
        member_id = self._string()
        instance_id = self._nullable_string()
        rack_id = self._nullable_string()
        client_id = self._string()
        client_host = self._string()
        (rebalance_timeout_ms,) = _TIMEOUT.unpack_from(self._body, self.position)
        self.position += _TIMEOUT.size
        topic_regex = self._nullable_string()
        server_assignor = self._nullable_string()
        epoch, previous_epoch, state, settled = _PROGRESS.unpack_from(self._body, self.position)
        self.position += _PROGRESS.size
        assigned = self._assignment()
        pending = self._assignment()
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
            target=assigned if settled else self._assignment(),
        )

    def _assignment(self) -> Assignment:
        count = self._count(18)
        if not count:
            return NOTHING
        assignment = {}
        for _ in range(count):
            topic_id = make_uuid(bytes(self._body[self.position : self.position + 16]))
            self.position += 16
            held = self._count(4)
            partitions, self.position = read_numbers(self._body, self.position, "i", 4, held)
            assignment[topic_id] = frozenset(partitions)
        return assignment

    def _names(self) -> frozenset[str]:
        return frozenset(self._string() for _ in range(self._count(1)))

    def _nullable_names(self) -> frozenset[str] | None:
        count, self.position = read_compact_nullable_count(self._body, self.position, len(self._body), 1)
        return None if count < 0 else frozenset(self._string() for _ in range(count))

    def _count(self, least: int) -> int:
        count, self.position = read_compact_count(self._body, self.position, len(self._body), least)
        return count

    def _string(self) -> str:
        string, self.position = read_compact_string(self._body, self.position, len(self._body))
        return string

    def _nullable_string(self) -> str | None:
        string, self.position = read_compact_nullable_string(self._body, self.position, len(self._body))
        return string
