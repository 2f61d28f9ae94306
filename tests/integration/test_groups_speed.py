"""What a large group costs. The bounds are several times what is measured, for slow and busy machines."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

import pytest
from tests.services.cpu import best_seconds
from tests.unit.broker.groups.classic.harness import REBALANCE_MS, SESSION_MS, subscription

from dray.broker.groups.classic import (
    ClassicGroup,
    ClassicGroupSettings,
    GroupState,
    Heartbeat,
    Join,
    Sync,
    TimerFired,
    TimerKind,
    decode_group,
    encode_group,
    handle,
)

MEMBERS = 500
METADATA = subscription(*(f"topic-{number:03}" for number in range(95)))
SETTINGS = ClassicGroupSettings()
NOW = 1_000_000


def joined() -> ClassicGroup:
    assert len(METADATA) > 1_000
    group: ClassicGroup | None = None
    for number in range(MEMBERS):
        join = Join(
            number,
            "group",
            "",
            3,
            SESSION_MS,
            REBALANCE_MS,
            "consumer",
            # Sticky assignors say what they own, so no two members say the same.
            [(name, METADATA + number.to_bytes(4, "big")) for name in ("range", "sticky")],
            client_id="client",
            client_host="/127.0.0.1",
            fresh_member_id=f"client-{number:036}",
        )
        group = handle(group, join, NOW, SETTINGS).group
    for turn in (1, 2):
        result = handle(group, TimerFired(TimerKind.JOIN), NOW + turn * 3_000, SETTINGS)
        group = result.group
    assert group is not None
    assert group.state is GroupState.COMPLETING
    assert len(result.replies) == MEMBERS
    return group


def settled() -> ClassicGroup:
    group = joined()
    for member_id in list(group.members):
        assignments: tuple[tuple[str, bytes], ...] = ()
        if member_id == group.leader_id:
            assignments = tuple((other, b"assignment") for other in group.members)
        sync = Sync(member_id, "group", member_id, group.generation, assignments=assignments)
        after = handle(group, sync, NOW, SETTINGS).group
        assert after is not None
        group = after
    assert group.state is GroupState.STABLE
    assert not group.owed_syncs
    return group


def test_a_round_of_joins() -> None:
    assert best_seconds(joined) < 0.1


def test_a_round_of_joins_and_syncs() -> None:
    assert best_seconds(settled) < 0.2


def test_a_heartbeat() -> None:
    group = settled()
    beats = [Heartbeat(0, "group", member_id, group.generation) for member_id in group.members] * 10

    def beat_all() -> None:
        for beat in beats:
            assert handle(group, beat, NOW, SETTINGS).group is group

    assert best_seconds(beat_all) / len(beats) < 15e-6


def test_storing_and_loading() -> None:
    group = settled()
    stored = encode_group(group)
    assert best_seconds(lambda: encode_group(group)) < 0.03
    assert best_seconds(lambda: decode_group("group", stored)) < 0.03


@pytest.mark.parametrize("build", [joined, settled])
def test_memory_of_a_member(build: Callable[[], ClassicGroup]) -> None:
    gc.collect()
    tracemalloc.start()
    try:
        group = build()
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(group.members) == MEMBERS
    assert used / MEMBERS < 20_000
