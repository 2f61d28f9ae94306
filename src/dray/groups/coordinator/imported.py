"""Groups that come from another cluster: their committed offsets, and a record without members.

A group without a record has no offsets, so both are put in one write. Nothing that is there is written
over: a group that lives here knows better.
"""

from __future__ import annotations

from collections.abc import Mapping

from dray.groups import classic
from dray.groups.classic import ClassicGroup
from dray.groups.coordinator.storage import GroupKind, GroupRecord, encode_record
from dray.groups.offsets import CommittedOffset
from dray.metadata import keys
from dray.metadata.contract import ABSENT, Put


def import_group(group_id: str, offsets: Mapping[tuple[str, int], CommittedOffset], now_ms: int) -> list[Put]:
    """What to write in the group's domain. `offsets` are by topic and partition."""
    record = GroupRecord(GroupKind.CLASSIC, 1, classic.encode_group(ClassicGroup(group_id, now_ms)))
    return [
        Put(keys.group(group_id), encode_record(record), ABSENT),
        *[
            Put(keys.group_offset(group_id, topic, partition), offset.encode(), ABSENT)
            for (topic, partition), offset in offsets.items()
        ],
    ]
