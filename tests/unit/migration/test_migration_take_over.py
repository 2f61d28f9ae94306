"""Copying and adopting what a topic borrows: what is said of it before, and while it goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.services import room_settings
from tests.services.two_builds import MIGRATION
from tests.unit.migration.attach_harness import Cluster
from tests.unit.migration.sources import aiven_files, aiven_key, in_memory

from dray.daemons.migrator.migration import check_owned
from dray.log.life.retention import Retention
from dray.migration.attach.found import MigrationRefused
from dray.migration.attach.inventory import Question, SourceLayout, take_inventory
from dray.migration.entries.ownership import ForeignOwnership
from dray.migration.entries.segments import ForeignSegments, ForeignStore
from dray.migration.record import MigrationState
from dray.migration.status import MigrationStatus, status_of


@pytest.mark.parametrize("copy", [True, False], ids=["copy", "adopt"])
async def test_progress_reaches_what_was_said_before(copy: bool) -> None:
    files = aiven_files()
    cluster = Cluster(SourceLayout.AIVEN, files)
    source = await cluster.source()
    record = await cluster.process().attach(source, await cluster.order())
    segments = ForeignSegments(
        cluster.objects, cluster.runtime, {"old": ForeignStore(source.store, {"key1": aiven_key()})}
    )
    ownership = ForeignOwnership(
        cluster.streams,
        segments,
        cluster.objects,
        cluster.runtime,
        Retention(cluster.streams, cluster.runtime, room_settings.log()),
    )
    before = await status_of(cluster.streams, "orders", record, exists=True)
    sizes = [len(data) for path, data in files.items() if path.endswith(".log")]
    assert (before.borrowed, before.borrowed_bytes) == (len(sizes), sum(sizes))
    seen: list[int] = []
    act = ownership.copy if copy else ownership.adopt
    assert sum([await act(stream, seen.append) for stream in record.streams]) == before.borrowed
    assert sum(seen) == (before.borrowed_bytes if copy else before.borrowed)
    after = await status_of(cluster.streams, "orders", record, exists=True)
    assert (after.borrowed, after.borrowed_bytes, after.segments) == (0, 0, before.segments)
    cluster.runtime.close()


async def test_a_status_says_which_segments_are_not_where_they_were() -> None:
    cluster = Cluster(SourceLayout.AIVEN, aiven_files())
    source = await cluster.source()
    record = await cluster.process().attach(source, await cluster.order())
    foreign = {"old": ForeignStore(source.store, {"key1": aiven_key()})}
    segments = ForeignSegments(cluster.objects, cluster.runtime, foreign)

    async def look(stores: ForeignSegments | None = segments) -> MigrationStatus:
        return await status_of(cluster.streams, "orders", record, exists=True, stores=stores)

    assert (await look()).missing == 0
    assert (await look(None)).missing is None, "nobody asked"
    logs = [info.path async for info in source.store.list("") if info.path.endswith(".log")]
    for path in logs[:2]:
        await source.store.delete(path)
    found = await look()
    assert (found.missing, found.unseen) == (2, "")
    unknown = await look(ForeignSegments(cluster.objects, cluster.runtime, {}))
    assert unknown.missing is None
    assert "old" in unknown.unseen
    cluster.runtime.close()


async def test_a_place_where_nothing_lies_is_said_to_be_empty() -> None:
    with pytest.raises(MigrationRefused, match="nothing lies at the place"):
        await take_inventory(await in_memory([]), Question("orders", SourceLayout.AIVEN))


@pytest.mark.parametrize("state", MigrationState)
def test_what_is_switched_may_be_copied_and_is_adopted_when_it_has_moved(state: MigrationState) -> None:
    ended = (MigrationState.ATTACHED, MigrationState.MOVED)
    record = replace(MIGRATION, state=state)
    for copy in (True, False):
        if state in ended or (copy and state is MigrationState.SWITCHED):
            assert check_owned("orders", record, copy=copy) is record
        else:
            with pytest.raises(MigrationRefused, match="not wholly Dray's yet: drayd migrate status orders"):
                check_owned("orders", record, copy=copy)
    with pytest.raises(MigrationRefused):
        check_owned("orders", None, copy=True)
