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

from dataclasses import replace
from struct import Struct
from typing import Final

from dray.broker.groups.classic.state import (
    ClassicGroup,
    GroupState,
    Member,
    Protocol,
    size_of,
    subscribed_topics,
)
from dray.broker.groups.cursor import Cursor, read_whole
from dray.kafka.protocol.wire import (
    DecodeError,
    write_compact_bytes,
    write_compact_count,
    write_compact_nullable_string,
    write_compact_string,
)
from dray.metadata.values import ValueCorrupt, seal, unseal

GROUP_FORMAT: Final = 1

_HEAD = Struct(">Biq")
_TIMEOUTS = Struct(">ii")
_STATES: Final = (GroupState.EMPTY, GroupState.PREPARING, GroupState.COMPLETING, GroupState.STABLE)
"""By their stored numbers."""

_LEAST_MEMBER_SIZE: Final = 14


def encode_group(group: ClassicGroup) -> bytes:
    if group.initial_delay is not None:
        # Its first members have got no answer yet, so there is nothing to keep for them.
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
    group = read_whole(what, body, lambda cursor: _group(cursor, group_id))
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


def _group(cursor: Cursor, group_id: str) -> ClassicGroup:
    number, generation, since_ms = cursor.fixed(_HEAD)
    if number >= len(_STATES):
        raise DecodeError(f"there is no state {number}")
    state = _STATES[number]
    group = ClassicGroup(
        group_id,
        since_ms,
        state,
        generation,
        protocol_type=cursor.nullable_string(),
        protocol_name=cursor.nullable_string(),
        leader_id=cursor.nullable_string(),
    )
    # It is not known which members have asked for an assignment: in a generation that has none yet, all may.
    owes_sync = state is GroupState.COMPLETING
    members = [_member(cursor, owes_sync) for _ in range(cursor.count(_LEAST_MEMBER_SIZE))]
    group = group.with_members(members)
    return replace(group, subscribed_topics=subscribed_topics(group))


def _member(cursor: Cursor, owes_sync: bool) -> Member:
    member_id = cursor.string()
    instance_id = cursor.nullable_string()
    client_id = cursor.string()
    client_host = cursor.string()
    session_timeout_ms, rebalance_timeout_ms = cursor.fixed(_TIMEOUTS)
    protocols = tuple(Protocol(cursor.string(), cursor.bytes()) for _ in range(cursor.count(2)))
    return Member(
        member_id,
        instance_id,
        client_id,
        client_host,
        session_timeout_ms,
        rebalance_timeout_ms,
        protocols,
        assignment=cursor.bytes(),
        owes_sync=owes_sync,
        size=size_of(member_id, instance_id, client_id, protocols),
    )
