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

Of a group that the source has and whose offsets could not be read there is a copy without any: it waits until
that is known.

A group that has moved with some topics may still read others at the source, in other processes. When such a
topic is linked, it is followed by itself (`later`), through FOUND, FOLLOWED and MOVED. Until its offsets are
here, nobody is told that the group has none in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Final, NamedTuple, TypeAlias
from uuid import UUID

from dray.metadata.values import NOT_IF_NONE, HexUuid, JsonCodec

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
class LaterTopic:
    """A topic that was linked when its group had moved already."""

    state: CopyState  # FOUND, FOLLOWED or MOVED
    topic_id: HexUuid
    offsets: tuple[CopiedOffset, ...]


@dataclass(frozen=True, slots=True)
class GroupCopy:
    state: CopyState
    source: str  # the upstream's name in the config
    topics: Mapping[str, CopiedTopic]
    taken_in: bool = False  # whether the offsets are the group's own by now
    later: Annotated[Mapping[str, LaterTopic] | None, NOT_IF_NONE] = None  # of one that has moved

    @property
    def is_waiting(self) -> bool:
        """Whether members are to wait here: the group still works at the source."""
        return self.state in (CopyState.FOUND, CopyState.FOLLOWED)

    @property
    def is_to_take_in(self) -> bool:
        return self.state is CopyState.MOVED and not self.taken_in

    @property
    def awaited(self) -> frozenset[str]:
        """Topics of which the group's offsets are still at the source, though it works here."""
        return frozenset(
            name for name, each in (self.later or {}).items() if each.state is not CopyState.MOVED
        )

    @property
    def came_later(self) -> dict[str, LaterTopic]:
        """Topics whose offsets are to be taken in where the group has none by then."""
        return {name: each for name, each in (self.later or {}).items() if each.state is CopyState.MOVED}

    def state_with(self, topic: str) -> CopyState | None:
        """How far the group is with a topic, for people. None where it did not come with it."""
        if self.later and topic in self.later:
            moved = self.later[topic].state is CopyState.MOVED
            return CopyState.MOVED if moved else CopyState.FOLLOWED
        if topic not in self.topics:
            return None
        return CopyState.FOLLOWED if self.is_waiting else self.state

    def is_unread(self, topic: str) -> bool:
        """It waits, and nothing is known of how far it has read in the topic."""
        found = (self.later or {}).get(topic) or self.topics.get(topic)
        return self.state_with(topic) is CopyState.FOLLOWED and found is not None and not found.offsets

    @property
    def offsets(self) -> dict[tuple[str, int], tuple[int, str]]:
        return {
            (name, each.partition): (each.offset, each.metadata)
            for name, topic in self.topics.items()
            for each in topic.offsets
        }

    @property
    def has_unsettled_topics(self) -> bool:
        return any(each.state is CopyState.FOUND for each in (self.later or {}).values())

    def to(self, state: CopyState) -> GroupCopy:
        return replace(self, state=state)

    def settled(self) -> GroupCopy:
        """Every coordinator knows of it."""
        later = {
            name: replace(each, state=CopyState.FOLLOWED) if each.state is CopyState.FOUND else each
            for name, each in (self.later or {}).items()
        }
        state = CopyState.FOLLOWED if self.state is CopyState.FOUND else self.state
        return replace(self, state=state, later=later or None)

    def without(self, topic: str, *, moved: bool = False) -> GroupCopy | None:
        """As it is once a topic does not come here after all. None where nothing is left of it. A group that
        has moved stays so, unless that is to be forgotten too: the topic is gone from here."""
        later = {name: each for name, each in (self.later or {}).items() if name != topic}
        if self.state is CopyState.MOVED and not moved:
            return replace(self, later=later or None)
        rest = {name: each for name, each in self.topics.items() if name != topic}
        return replace(self, topics=rest, later=later or None) if rest or later else None


def copied_topics(offsets: Offsets, topic_ids: Mapping[str, UUID]) -> dict[str, CopiedTopic]:
    """In the order of names and partitions, so that equal offsets are equal bytes."""
    return {name: CopiedTopic(topic_ids[name], rows) for name, rows in copied_rows(offsets).items()}


def copied_rows(offsets: Offsets) -> dict[str, tuple[CopiedOffset, ...]]:
    found: dict[str, list[CopiedOffset]] = {}
    for (name, partition), (offset, metadata) in sorted(offsets.items()):
        found.setdefault(name, []).append(CopiedOffset(partition, offset, metadata))
    return {name: tuple(rows) for name, rows in found.items()}


_CODEC: Final = JsonCodec(GroupCopy, FOLLOWED_FORMAT)


def encode_copy(copy: GroupCopy) -> bytes:
    return _CODEC.encode(copy)


def decode_copy(group_id: str, value: bytes) -> GroupCopy:
    return _CODEC.decode(f"what is copied of group '{group_id}'", value)
