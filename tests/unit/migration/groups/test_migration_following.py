"""The groups of a source, and the migrations that they belong to."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from tests.services.two_builds import MIGRATION
from tests.unit.broker.groups.coordinator.harness import DOMAINS, GROUP, World, simulated
from tests.unit.migration.groups.followed_world import (
    UPSTREAM,
    FakeGroupSource,
    GroupAtSource,
    Links,
    migrator,
)

from dray.cli.link_views import live_as_plain, print_live
from dray.daemons.migrator.links import LiveStatus, MirroredPartition
from dray.log.entries import HighWatermark
from dray.log.origins import CLASSIC, Origin
from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.metadata.contract import Put
from dray.migration.groups.copy import CopyState
from dray.migration.groups.rounds import GroupsOfTopic, SourceFollower, groups_of, linked_topics
from dray.migration.record import MigrationRecord, Migrations, MigrationState
from dray_simulation.kernel.runtime import SimulatedRuntime


def record(state: MigrationState, upstream: str = UPSTREAM) -> MigrationRecord:
    return replace(
        MIGRATION,
        state=state,
        upstream=upstream,
        source_topic_id=UUID(int=7),
        attempt=0,
        partitions=2,
        streams=(4, 5),
    )


@simulated
async def test_a_round_that_was_under_way_at_an_abort_leaves_no_group_waiting() -> None:
    world = World()
    links = Links(world, a=1, b=1)
    source = FakeGroupSource(
        {GROUP: GroupAtSource({("a", 0): (7, "")}), "other": GroupAtSource({("b", 0): (7, "")})}
    )
    follows = migrator(world, source, links)
    migrations = Migrations(follows.store, SimulatedRuntime(1))
    await migrations.begin("b", record(MigrationState.MIRRORING))
    follower = SourceFollower(follows.follower, follows.copies, follows.store, migrations)
    await follower.run_once()
    assert list(await follows.copies.read_all()) == ["other"]
    # And one that left something behind, and died.
    await follows.follower.run_once()
    links.topics.clear()
    await follower.run_once()
    assert list(await follows.copies.read_all()) == ["other"]


@simulated
async def test_topics_are_linked_until_they_have_moved_and_switched_when_the_record_says_so() -> None:
    world = World()
    store = migrator(world, FakeGroupSource(), Links(world)).store
    migrations = Migrations(store, SimulatedRuntime(1))
    for state in MigrationState:
        if state is not MigrationState.ATTACHED:
            await migrations.begin(state, record(state))
    await migrations.begin("another", record(MigrationState.MIRRORING, "another"))
    for stream, boundary in ((4, 10), (5, 20)):
        mark = HighWatermark(end=boundary, origin=Origin(boundary, 0, 65_536)).encode()
        put = Put(keys.high_watermark(stream), mark)
        await store.write(keys.domain_of_stream(stream, DOMAINS), [put])
    streams = StreamStore(store, DOMAINS, 1000)
    found = {each.name: each for each in await linked_topics(migrations, streams, UPSTREAM)}
    assert set(found) == {"attaching", "publishing", "mirroring", "pending", "switched"}
    assert [name for name, each in found.items() if each.is_switched] == ["switched"]
    assert found["switched"].boundaries == {0: 10, 1: 20}
    mark = HighWatermark(end=20, origin=Origin(CLASSIC, 0, 65_536)).encode()
    await store.write(keys.domain_of_stream(5, DOMAINS), [Put(keys.high_watermark(5), mark)])
    [switched] = [each for each in await linked_topics(migrations, streams, UPSTREAM) if each.boundaries]
    assert not switched.is_switched


@simulated
async def test_the_groups_of_a_topic_are_named_by_how_far_they_are() -> None:
    world = World()
    links = Links(world, a=1, b=1)
    source = FakeGroupSource(
        {
            "busy": GroupAtSource({("a", 0): (7, "")}, members=1),
            "gone": GroupAtSource({("a", 0): (7, "")}),
            "lives": GroupAtSource({("a", 0): (7, "")}),
            "of b": GroupAtSource({("b", 0): (7, "")}),
        }
    )
    broker = await world.broker(1)
    await broker.stable_group("lives")
    links.switch("a")
    follows = migrator(world, source, links)
    await follows.follower.run_once()
    assert await groups_of(follows.copies, "a") == GroupsOfTopic(
        {CopyState.FOLLOWED: ["busy"], CopyState.MOVED: ["gone"], CopyState.HERE: ["lives"]}, []
    )
    await broker.commit(8, group_id="gone")  # it has taken its offsets in
    assert (await groups_of(follows.copies, "a")).states[CopyState.MOVED] == ["gone"]
    await broker.stop()


def test_status_names_the_groups(capsys: pytest.CaptureFixture[str]) -> None:
    groups = {CopyState.FOLLOWED: ["busy"], CopyState.MOVED: [str(n) for n in range(12)]}
    status = LiveStatus("orders", record(MigrationState.SWITCHED), [], groups=groups)
    print_live(status)
    said = capsys.readouterr().out
    assert "have left the source: busy\n" in said
    assert "groups that have moved: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more\n" in said
    assert "left alone" not in said
    assert live_as_plain(status)["groups"]["followed"] == ["busy"]
    assert "borrowed" not in said


def test_status_says_what_must_not_be_deleted_at_the_source(capsys: pytest.CaptureFixture[str]) -> None:
    status = LiveStatus("orders", record(MigrationState.SWITCHED), [], borrowed=3)
    print_live(status)
    assert (
        "orders: 3 segments are borrowed: do not delete that topic at its source" in capsys.readouterr().out
    )
    assert live_as_plain(status)["borrowed"] == 3


def test_status_says_what_the_source_deleted_before_it_was_mirrored(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = record(MigrationState.MIRRORING).with_skipped(1, 100, 140)
    partitions = [MirroredPartition(number, 200, 200, None) for number in range(2)]
    status = LiveStatus("orders", found, partitions)
    print_live(status)
    assert "partition 1: 40 offsets below 140 are not here: the source had deleted" in capsys.readouterr().out
    assert [each["skipped"] for each in live_as_plain(status)["partitions"]] == [0, 40]
