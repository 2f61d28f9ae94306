"""The record of a live migration: which state may follow which, and how it is stored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from tests.services.two_builds import MIGRATION

from dray.base.runtime import SystemRuntime
from dray.metadata.memory import MemoryStore
from dray.metadata.values import UnreadableValue
from dray.migration.attach.found import MigrationRefused
from dray.migration.live.steps import go_back, go_on, request_switch
from dray.migration.record import (
    NO_TIER,
    MigrationRecord,
    Migrations,
    MigrationState,
    SkippedOffsets,
    decode_migration,
    encode_migration,
)

VALUES = Path(__file__).parents[2] / "fixtures" / "values"

LIVE = replace(
    MIGRATION,
    state=MigrationState.PENDING,
    layout=NO_TIER,
    source="kafka:9092",
    store="",
    plan="",
    upstream="old",
    source_topic_id=UUID(int=6),
    attempt=2,
    fence="acl",
    undo={"allows_rest": "true"},
    why="partition 0: the source has lost records",
    stopped={0: "the source has lost records"},
)

FOLLOWS = {
    ("attaching", "attaching"),
    ("attaching", "publishing"),
    ("attaching", "aborting"),
    ("publishing", "mirroring"),
    ("mirroring", "pending"),
    ("mirroring", "aborting"),
    ("pending", "mirroring"),
    ("pending", "switched"),
    ("switched", "moved"),
}
COLD_FOLLOWS = {
    ("attaching", "attaching"),
    ("attaching", "publishing"),
    ("attaching", "aborting"),
    ("publishing", "attached"),
}


@pytest.mark.parametrize("state", MigrationState)
@pytest.mark.parametrize("following", MigrationState)
@pytest.mark.parametrize("is_live", [True, False], ids=["live", "cold"])
def test_every_transition_that_is_not_in_the_table_is_refused(
    state: MigrationState, following: MigrationState, is_live: bool
) -> None:
    record = replace(LIVE if is_live else MIGRATION, state=state, undo=None)
    if (state.value, following.value) in (FOLLOWS if is_live else COLD_FOLLOWS):
        assert record.to(following).state is following
    else:
        with pytest.raises(MigrationRefused, match=f"that is {state} cannot become {following}"):
            record.to(following)


def test_a_fence_is_lifted_before_an_abort() -> None:
    with pytest.raises(MigrationRefused, match="has to be lifted"):
        replace(LIVE, state=MigrationState.MIRRORING).to(MigrationState.ABORTING)


def test_a_live_migration_has_format_2_and_cold_ones_stay_as_they_were() -> None:
    value = (VALUES / "migration.v2.bin").read_bytes()
    assert encode_migration(LIVE) == value
    assert decode_migration("orders", value) == LIVE
    cold = (VALUES / "migration.v1.bin").read_bytes()
    assert encode_migration(MIGRATION) == cold
    assert decode_migration("orders", cold) == MIGRATION
    assert not decode_migration("orders", cold).is_live


def test_what_was_lifted_and_when_a_switch_began_is_stored() -> None:
    record = replace(LIVE, lifted={"acl": {"allows_rest": "true"}, "size": {}}, began_ms=1_790_000_000_000)
    assert decode_migration("orders", encode_migration(record)) == record


def test_a_value_whose_format_is_not_that_of_its_state_is_unreadable() -> None:
    value = (VALUES / "migration.v2.bin").read_bytes()
    cold = (VALUES / "migration.v1.bin").read_bytes()
    broken = [
        b"\x01" + value[1:],
        b"\x02" + cold[1:],
        cold.replace(b'"attached"', b'"mirroring"'),
        value.replace(b'"pending"', b'"attached"'),
        value.replace(b'"attempt"', b'"attempts"'),
        value.replace(b'"source_topic_id"', b'"source_topic"'),
        b"\x03" + value[1:],
    ]
    for each in broken:
        assert each not in (value, cold)
        with pytest.raises(UnreadableValue, match="the migration of topic 'orders'"):
            decode_migration("orders", each)


def test_what_the_source_deleted_first_is_counted_once() -> None:
    record = LIVE.with_skipped(3, 10, 15)
    assert record.skipped == {3: SkippedOffsets(5, 15)}
    assert record.with_skipped(3, 10, 15) == record, "it was said before, and not done"
    assert record.with_skipped(3, 10, 17).skipped == {3: SkippedOffsets(7, 17)}, "it begins later by now"
    record = record.with_skipped(3, 40, 42).with_skipped(0, 0, 1)
    assert record.skipped == {3: SkippedOffsets(7, 42), 0: SkippedOffsets(1, 1)}
    assert decode_migration("orders", encode_migration(record)) == record
    assert b"skipped" not in encode_migration(LIVE)


async def begun(record: MigrationRecord) -> Migrations:
    runtime = SystemRuntime(threads=1)
    migrations = Migrations(MemoryStore(runtime), runtime)
    await migrations.begin("orders", record)
    return migrations


async def test_a_switch_is_asked_for_once() -> None:
    mirroring = replace(LIVE, state=MigrationState.MIRRORING, undo=None, stopped=None, began_ms=5)
    migrations = await begun(mirroring)
    asked = await request_switch(migrations, "orders", "size")
    assert (asked.state, asked.fence, asked.attempt, asked.why) == ("pending", "size", 3, None)
    assert asked.began_ms is None, "it has all its time before it"
    assert await request_switch(migrations, "orders") == asked, "the one that is under way"


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (MIGRATION, "is not linked"),
        (replace(LIVE, state=MigrationState.PUBLISHING), "is publishing, and only one that is mirrored"),
        (
            replace(LIVE, state=MigrationState.MIRRORING, stopped=None),
            "fence of the last switch is not lifted",
        ),
        (replace(LIVE, state=MigrationState.MIRRORING, undo=None), "partition 0 is not mirrored any more"),
    ],
    ids=["cold", "publishing", "fenced", "stopped"],
)
async def test_a_switch_that_cannot_be_is_refused(record: MigrationRecord, why: str) -> None:
    migrations = await begun(record)
    with pytest.raises(MigrationRefused, match=why):
        await request_switch(migrations, "orders")
    assert await migrations.read("orders") == record


async def test_only_the_try_that_failed_goes_back() -> None:
    migrations = await begun(LIVE)
    earlier = replace(LIVE, attempt=1)
    assert await go_back(migrations, "orders", earlier, "late") == LIVE
    back = await go_back(migrations, "orders", LIVE, "producers differ")
    assert (back.state, back.why, back.undo) == ("mirroring", "producers differ", LIVE.undo)
    assert await go_on(migrations, "orders", earlier) == back
    assert (await go_on(migrations, "orders", back)).state == "pending"
