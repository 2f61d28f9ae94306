"""What is copied of a group, as it is stored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from tests.services.two_builds import GROUP_COPY, STRAGGLERS

from dray.metadata.values import UnreadableValue
from dray.migration.groups.copy import CopyState, copied_topics, decode_copy, encode_copy
from dray.migration.live.stragglers import decode_progress, encode_progress

VALUES = Path(__file__).parents[3] / "fixtures" / "values"


def test_a_copy_is_stored_as_it_always_was() -> None:
    value = (VALUES / "followed-group.v1.bin").read_bytes()
    assert encode_copy(GROUP_COPY) == value
    assert decode_copy("g", value) == GROUP_COPY


def test_what_was_produced_again_is_stored_as_it_always_was() -> None:
    value = (VALUES / "stragglers.v1.bin").read_bytes()
    assert encode_progress(STRAGGLERS) == value
    assert decode_progress("orders", value) == STRAGGLERS


def test_what_is_cut_short_or_newer_is_unreadable() -> None:
    value = encode_copy(GROUP_COPY)
    for broken in (value[:-2], b"\x02" + value[1:], b"\x01{}"):
        with pytest.raises(UnreadableValue, match="what is copied of group 'g'"):
            decode_copy("g", broken)


@pytest.mark.parametrize("state", CopyState)
def test_who_waits_and_who_brings_offsets_along(state: CopyState) -> None:
    copy = replace(GROUP_COPY, state=state, taken_in=False)
    assert copy.is_waiting == (state in (CopyState.FOUND, CopyState.FOLLOWED))
    assert copy.is_to_take_in == (state is CopyState.MOVED)
    assert not replace(copy, taken_in=True).is_to_take_in


def test_offsets_come_back_as_they_were() -> None:
    offsets = {("b", 1): (5, "x"), ("a", 0): (7, ""), ("a", 11): (1, "y")}
    topics = copied_topics(offsets, {"a": UUID(int=1), "b": UUID(int=2)})
    assert replace(GROUP_COPY, topics=topics).offsets == offsets
    assert list(topics) == ["a", "b"]
