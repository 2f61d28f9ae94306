"""A classic group as it is stored: everything the next coordinator needs, and no timers.

Format 1, behind the version byte:

    int8 state, int32 generation, int64 since
    nullable string protocol type, nullable string protocol name, nullable string leader id
    array of members:   string id, nullable string instance id, string client id, string client host,
                        int32 session timeout, int32 rebalance timeout,
                        array of protocols (string name, bytes metadata), bytes assignment

Strings, bytes and arrays are those of Kafka's compact encodings, read by the same bounded readers.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from struct import Struct
from typing import Final

from dray.groups.classic.state import ClassicGroup, GroupState, Member, Protocol
from dray.groups.classic.subscription import subscribed_topics
from dray.metadata.values import ValueCorrupt, seal, unseal
from dray.protocol.wire import (
    DecodeError,
    read_compact_bytes,
    read_compact_count,
    read_compact_nullable_string,
    read_compact_string,
    write_compact_bytes,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
)

GROUP_FORMAT: Final = 1

_HEAD = Struct(">Biq")
_TIMEOUTS = Struct(">ii")
_STATES: Final = (GroupState.EMPTY, GroupState.PREPARING, GroupState.COMPLETING, GroupState.STABLE)
"""By their stored numbers."""

_LEAST_MEMBER_SIZE: Final = 14


def encode_group(group: ClassicGroup) -> bytes:
    if group.initial_delay is not None:
        # Its first members have been told nothing yet, so there is nothing to keep for them.
        group = replace(group, state=GroupState.EMPTY, leader_id=None).with_members(())
    out = bytearray(_HEAD.pack(_STATES.index(group.state), group.generation, group.since_ms))
    write_compact_nullable_string(out, group.protocol_type)
    write_compact_nullable_string(out, group.protocol_name)
    write_compact_nullable_string(out, group.leader_id)
    write_compact_count(out, len(group.members))
    for member in group.members.values():
        _write_member(out, member)
    return seal(GROUP_FORMAT, bytes(out))


def decode_group(group_id: str, value: bytes) -> ClassicGroup:
    """With nothing parked, and no one pending: `TakenOver` is what it needs next."""
    what = f"classic group '{group_id}'"
    _, body = unseal(what, value, GROUP_FORMAT)
    try:
        reader = _Reader(body)
        group = reader.group(group_id)
    except (IndexError, struct.error, ValueError) as error:
        raise ValueCorrupt(what, str(error)) from error
    if reader.position != len(body):
        raise ValueCorrupt(what, f"{len(body) - reader.position} bytes follow its end")
    if (group.leader_id in group.members) != bool(group.members):
        raise ValueCorrupt(
            what, f"its leader '{group.leader_id}' is not among its {len(group.members)} members"
        )
    return group


def _write_member(out: bytearray, member: Member) -> None:
    write_compact_string(out, member.member_id)
    write_compact_nullable_string(out, member.instance_id)
    write_compact_string(out, member.client_id)
    write_compact_string(out, member.client_host)
    out += _TIMEOUTS.pack(member.session_timeout_ms, member.rebalance_timeout_ms)
    write_compact_count(out, len(member.protocols))
    for name, metadata in member.protocols:
        write_compact_string(out, name)
        write_compact_bytes(out, metadata)
    write_compact_bytes(out, member.assignment)


class _Reader:
    def __init__(self, body: memoryview) -> None:
        self._body = body
        self.position = _HEAD.size

    def group(self, group_id: str) -> ClassicGroup:
        number, generation, since_ms = _HEAD.unpack_from(self._body, 0)
        if number >= len(_STATES):
            raise DecodeError(f"there is no state {number}")
        state = _STATES[number]
        group = ClassicGroup(
            group_id,
            since_ms,
            state,
            generation,
            protocol_type=self._nullable_string(),
            protocol_name=self._nullable_string(),
            leader_id=self._nullable_string(),
        )
        # Who has asked for its assignment is not known: in a generation that has none yet, everybody may.
        owes_sync = state is GroupState.COMPLETING
        members = [self._member(owes_sync) for _ in range(self._count(_LEAST_MEMBER_SIZE))]
        group = group.with_members(members)
        return replace(group, subscribed_topics=subscribed_topics(group))

    def _member(self, owes_sync: bool) -> Member:
        member_id = self._string()
        instance_id = self._nullable_string()
        client_id = self._string()
        client_host = self._string()
        session_timeout_ms, rebalance_timeout_ms = _TIMEOUTS.unpack_from(self._body, self.position)
        self.position += _TIMEOUTS.size
        protocols = tuple(Protocol(self._string(), self._bytes()) for _ in range(self._count(2)))
        return Member(
            member_id,
            instance_id,
            client_id,
            client_host,
            session_timeout_ms,
            rebalance_timeout_ms,
            protocols,
            assignment=self._bytes(),
            owes_sync=owes_sync,
        )

    def _count(self, least: int) -> int:
        count, self.position = read_compact_count(self._body, self.position, len(self._body), least)
        return count

    def _string(self) -> str:
        string, self.position = read_compact_string(self._body, self.position, len(self._body))
        return string

    def _nullable_string(self) -> str | None:
        string, self.position = read_compact_nullable_string(self._body, self.position, len(self._body))
        return string

    def _bytes(self) -> bytes:
        raw, self.position = read_compact_bytes(self._body, self.position, len(self._body))
        return raw
