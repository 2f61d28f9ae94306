"""Groups that still work at another cluster: what is copied of one, and whether it may work here.

    state       what it means                                        what may follow
    --------    -------------------------------------------------    ------------------------
    FOUND       the source has it; a coordinator here may not know    FOLLOWED, HERE
    FOLLOWED    no coordinator lets it in; its offsets are copied     MOVED
    MOVED       it is Dray's: nothing is copied any more              (stays)
    HERE        it had members here already: nothing is copied        (stays)

The offsets are in the value itself. So the last copy and the end of all copying are one compare-and-set, and
a migrator that comes late has lost before it can write. The coordinator takes them over from there, before it
lets the first member in (`taken_in`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from dray.metadata.codec import HexUuid, JsonCodec

FOLLOWED_FORMAT: Final = 1

Offsets: TypeAlias = Mapping[tuple[str, int], tuple[int, str]]
"""By topic and partition: offset, and the text that the group committed with it."""


class CopyState(StrEnum):
    FOUND = "found"
    FOLLOWED = "followed"
    MOVED = "moved"
    HERE = "here"


class CopiedOffset(NamedTuple):
    partition: int
    offset: int
    metadata: str


@dataclass(frozen=True, slots=True)
class CopiedTopic:
    topic_id: HexUuid
    offsets: tuple[CopiedOffset, ...]


@dataclass(frozen=True, slots=True)
class GroupCopy:
    state: CopyState
    source: str  # the upstream's name in the config
    topics: Mapping[str, CopiedTopic]
    taken_in: bool = False  # whether the offsets are the group's own by now

    @property
    def is_waiting(self) -> bool:
        """Whether members are to wait here: the group still works at the source."""
        return self.state in (CopyState.FOUND, CopyState.FOLLOWED)

    @property
    def is_to_take_in(self) -> bool:
        return self.state is CopyState.MOVED and not self.taken_in

    @property
    def offsets(self) -> dict[tuple[str, int], tuple[int, str]]:
        return {
            (name, each.partition): (each.offset, each.metadata)
            for name, topic in self.topics.items()
            for each in topic.offsets
        }

    def to(self, state: CopyState) -> GroupCopy:
        return replace(self, state=state)


def copied_topics(offsets: Offsets, topic_ids: Mapping[str, UUID]) -> dict[str, CopiedTopic]:
    """In the order of names and partitions, so that equal offsets are equal bytes."""
    found: dict[str, list[CopiedOffset]] = {}
    for (name, partition), (offset, metadata) in sorted(offsets.items()):
        found.setdefault(name, []).append(CopiedOffset(partition, offset, metadata))
    return {name: CopiedTopic(topic_ids[name], tuple(rows)) for name, rows in found.items()}


_CODEC: Final = JsonCodec(GroupCopy, FOLLOWED_FORMAT)


def encode_copy(copy: GroupCopy) -> bytes:
    return _CODEC.encode(copy)


def decode_copy(group_id: str, value: bytes) -> GroupCopy:
    return _CODEC.decode(f"what is copied of group '{group_id}'", value)
