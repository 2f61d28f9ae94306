"""Long histories of a table against a set of files: whatever was done, it holds just these."""

from __future__ import annotations

from random import Random

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import ManifestFile
from tests.services.iceberg_files import TopicFiles, other_topic
from tests.unit.tables.iceberg.harness import loaded, metadata_on_disk, ours

from dray.tables.contract import CommitOutcome, TableChange, TableFile, TableRefused
from dray.tables.iceberg.maintenance import plan_expiry
from dray.tables.iceberg.manifests import TIER, KnownManifests, tier_of
from dray.tables.iceberg.settings import CatalogSettings
from dray.tables.iceberg.tables import IcebergTables


class Model:
    """What the table should hold, and random steps that a compactor may take."""

    def __init__(self, files: TopicFiles, random: Random) -> None:
        self.files = files
        self.random = random
        self.held: list[list[TableFile]] = [[], [], []]
        self.jobs = 0

    def step(self) -> list[TableChange]:
        changes = []
        for partition in self.random.sample(range(3), self.random.randint(1, 3)):
            held = self.held[partition]
            kind = self.random.choice(["append", "append", "append", "merge", "expire", "nothing"])
            self.jobs += 1
            job = f"{partition}-{self.jobs}"
            if kind == "append":
                start = held[-1].last_offset + 1 if held else 0
                added = self.files.write(partition, start, self.random.randint(1, 9), real=False)
                held.append(added)
                changes.append(TableChange(job, (added,)))
            elif kind == "merge" and len(held) > 1:
                first = self.random.randrange(len(held) - 1)
                old = held[first : first + self.random.randint(2, 12)]
                count = old[-1].last_offset + 1 - old[0].first_offset
                merged = self.files.write(partition, old[0].first_offset, count, real=False)
                held[first : first + len(old)] = [merged]
                changes.append(TableChange(job, (merged,), tuple(file.path for file in old)))
            elif kind == "expire" and held:
                gone = held[: self.random.randint(1, 2)]
                del held[: len(gone)]
                changes.append(TableChange(job, (), tuple(file.path for file in gone)))
            else:
                changes.append(TableChange(job))
        return changes

    def paths(self) -> set[str]:
        return {file.path for held in self.held for file in held}

    def rows(self) -> int:
        return sum(file.written.record_count for held in self.held for file in held)


@pytest.mark.parametrize("seed", [1])
async def test_whatever_is_done_the_table_holds_the_files(
    tables: IcebergTables, files: TopicFiles, seed: int
) -> None:
    model = Model(files, Random(seed))
    await tables.ensure(files.topic)
    for step in range(50):
        changes = model.step()
        outcomes = await tables.commit(files.topic, changes, ours)
        assert set(outcomes.values()) == {CommitOutcome.COMMITTED}
        assert await tables.current_files(files.topic) == model.paths()
        if step % 12 == 11:
            await tables.maintain(files.topic, [], 2**60)
            assert await tables.live_files(files.topic) == model.paths()
            assert metadata_on_disk(files) == await tables.live_metadata(files.topic)
    table = await loaded(tables, files)
    current = table.current_snapshot()
    assert current is not None
    assert current.summary is not None
    assert int(str(current.summary["total-records"])) == model.rows()
    assert int(str(current.summary["total-data-files"])) == len(model.paths())
    manifests = current.manifests(table.io)
    # Notes about what was taken out stay for the snapshot that did it, and no longer.
    assert all(_live(each) or each.added_snapshot_id == current.snapshot_id for each in manifests)
    live = [manifest for manifest in manifests if _live(manifest)]
    tiers = [tier_of(_live(manifest)) for manifest in live]
    assert all(tiers.count(tier) < TIER for tier in set(tiers))


def _live(manifest: ManifestFile) -> int:
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


async def test_a_table_made_anew_meanwhile_is_not_taken_for_the_old_one(
    tables: IcebergTables, files: TopicFiles, settings: CatalogSettings
) -> None:
    """Both are empty, so they are at the same snapshot: only their UUIDs tell them apart. The new one is of
    another topic of the same name."""
    await tables.ensure(files.topic)
    catalog = SqlCatalog("dray", uri=str(settings.uri))
    stranger = other_topic(files.topic)

    async def replaced(_: TableChange) -> bool:
        catalog.drop_table(("lake", files.topic.topic))
        await tables.ensure(stranger)
        return True

    with pytest.raises(TableRefused, match="it belongs to the topic id"):
        await tables.commit(files.topic, [files.change("100-1", files.write(0, 0))], replaced)
    assert await tables.live_files(stranger) == set()


async def test_expiry_gives_way_to_a_commit(
    tables: IcebergTables, files: TopicFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it would delete was judged by a table that has moved on."""
    from dray.tables.iceberg import tables as module

    await tables.ensure(files.topic)
    for number in range(3):
        await tables.commit(files.topic, [files.change(f"100-{number}", files.write(0, 3 * number))], ours)
    plan = plan_expiry
    stale = await loaded(tables, files)
    await tables.commit(files.topic, [files.change("100-3", files.write(0, 9))], ours)
    monkeypatch.setattr(module, "plan_expiry", lambda _, *others: plan(stale, *others))
    done = await tables.maintain(files.topic, [], 2**60)
    assert done.snapshots_expired == 0
    assert metadata_on_disk(files) == await tables.live_metadata(files.topic)


async def test_what_is_remembered_of_manifests_is_bounded(tables: IcebergTables, files: TopicFiles) -> None:
    await tables.ensure(files.topic)
    for number in range(4):
        added = [files.write(0, 100 * number + 10 * each, real=False) for each in range(3)]
        await tables.commit(files.topic, [files.change(f"100-{number}", *added)], ours)
    table = await loaded(tables, files)
    current = table.current_snapshot()
    assert current is not None
    known = KnownManifests(most_paths=7)
    for _ in range(2):
        for manifest in current.manifests(table.io):
            assert len(known.paths(manifest, table.io)) == 3
        assert len(known) <= 7
