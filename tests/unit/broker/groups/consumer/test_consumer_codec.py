"""A group as it is stored: format 1 for ever, and what cannot be read."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.services.cpu import best_seconds
from tests.unit.broker.groups.consumer.harness import Coordinator, listed, parts

from dray.broker.groups.consumer import (
    ConsumerGroup,
    ConsumerGroupSettings,
    Heartbeat,
    TopicShape,
    TopicsTable,
    decode_group,
    encode_group,
    handle,
)
from dray.broker.groups.consumer.codec import GROUP_FORMAT
from dray.metadata.values import FormatTooNew, UnreadableValue, ValueCorrupt

FORMAT_1 = Path(__file__).with_name("consumer_group_format_1.bin")


def sample() -> ConsumerGroup:
    """Something of everything: names, patterns, a static member, one that gives up, one that waits."""
    coordinator = Coordinator(topics={"a": 3, "b": 2, "c": 1})
    coordinator.join(
        "m1", "a", "b", instance_id="i1", rack_id="r1", client_id="ünï", server_assignor="uniform"
    )
    coordinator.join("m2", topic_regex="[bc]")
    coordinator.resolve(bc="bc")
    coordinator.join("m3", "a", topic_regex="[d]")
    coordinator.beat("m1", 1, instance_id="i1", client_id="ünï", owned=listed(parts(a=[0, 1, 2], b=[0, 1])))
    return coordinator.state


def test_format_1_is_read_for_ever() -> None:
    """Written by the build that made format 1. When this fails, keep reading it and make a format 2."""
    group = decode_group("group", FORMAT_1.read_bytes())
    assert group == sample()
    assert group.owned == sample().owned
    assert group.static == {"i1": "m1"}
    assert encode_group(group) == FORMAT_1.read_bytes()


def test_a_member_is_encoded_once() -> None:
    group = sample()
    encode_group(group)
    kept = {member_id: member.stored for member_id, member in group.members.items()}
    assert all(kept.values())
    encode_group(group)
    assert all(member.stored is kept[member_id] for member_id, member in group.members.items())


def test_a_settled_member_holds_its_partitions_once() -> None:
    coordinator = Coordinator()
    coordinator.join("m1")
    member = decode_group("group", encode_group(coordinator.state)).members["m1"]
    assert member.assigned is member.target


def test_a_newer_format_is_refused() -> None:
    with pytest.raises(FormatTooNew):
        decode_group("group", bytes([GROUP_FORMAT + 1]) + encode_group(sample())[1:])


def test_a_value_cut_short_is_refused() -> None:
    value = FORMAT_1.read_bytes()
    for length in range(len(value)):
        with pytest.raises(ValueCorrupt):
            decode_group("group", value[:length])


def test_bytes_behind_the_end_are_refused() -> None:
    with pytest.raises(ValueCorrupt, match="1 bytes follow"):
        decode_group("group", FORMAT_1.read_bytes() + b"\0")


@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_a_changed_byte_is_refused_or_gives_a_group(data: st.DataObject) -> None:
    value = bytearray(FORMAT_1.read_bytes())
    value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_group("group", bytes(value))
    except UnreadableValue:
        return


def test_a_large_group_is_stored_and_answers_quickly() -> None:
    """Bounds with room for a busy machine; the figures themselves are a tenth of these."""
    view = TopicsTable({f"t{number}": TopicShape(UUID(int=number + 1), 100) for number in range(50)}, 1)
    names = [f"t{number}" for number in range(50)]
    group: ConsumerGroup | None = None
    for number in range(500):
        beat = Heartbeat(
            "g", f"m{number:03}", 0, 1, "c", "h", rebalance_timeout_ms=1000, topic_names=names, owned=[]
        )
        group = handle(group, beat, 0, view, ConsumerGroupSettings()).group
    assert group is not None
    decoded = decode_group("g", encode_group(group))
    assert best_seconds(lambda: encode_group(decoded), 1) < 0.1
    assert best_seconds(lambda: encode_group(decoded)) < 0.02
    last = Heartbeat("g", "m499", decoded.members["m499"].epoch, 1, "c", "h")
    group = handle(decoded, last, 0, view, ConsumerGroupSettings()).group

    def many_beats() -> None:
        for _ in range(1000):
            handle(group, last, 0, view, ConsumerGroupSettings())

    assert best_seconds(many_beats) < 0.2
