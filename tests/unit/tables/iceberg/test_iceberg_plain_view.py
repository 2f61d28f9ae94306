"""A plain table read without the library is what the library says, or nothing is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from pyiceberg.types import DecimalType, StringType
from tests.services.iceberg_files import TopicFiles
from tests.unit.tables.iceberg.harness import CLUSTER, first_commit, loaded, newest, ours

from dray.tables.contract import TableChange
from dray.tables.iceberg import view as plain
from dray.tables.iceberg.schema import COLUMNS
from dray.tables.iceberg.settings import CatalogSettings
from dray.tables.iceberg.tables import IcebergTables
from dray.tables.iceberg.view import NotPlain, plain_view


async def same(tables: IcebergTables, settings: CatalogSettings, topic: str) -> None:
    known = await tables.view(topic)
    found = plain_view(settings, CLUSTER, topic)
    assert known is not None
    assert found is not None
    nested = {column.name for column in known.columns if "<" in column.kind}
    assert [column.kind for column in found.columns if column.name in nested] == ["list"]
    kinds = [replace(column, kind="") if column.name in nested else column for column in known.columns]
    assert [replace(each, kind="") if each.name in nested else each for each in found.columns] == kinds
    assert replace(found, columns=(), clean_points={}) == replace(known, columns=(), clean_points={})


async def test_it_is_what_the_library_says(
    tables: IcebergTables, files: TopicFiles, settings: CatalogSettings
) -> None:
    topic = files.topic.topic
    await tables.ensure(files.topic)
    await same(tables, settings, topic)  # of no snapshot yet
    first, second = files.write(0, 0), files.write(1, 0)
    await tables.commit(files.topic, [files.change("7-1", first), files.change("8-1", second)], ours)
    await same(tables, settings, topic)
    await tables.commit(files.topic, [TableChange("7-r", (), (first.path,))], ours)
    await same(tables, settings, topic)
    table = await loaded(tables, files)
    with table.update_schema() as update:
        update.rename_column("value", "payload")
        update.add_column("note", StringType())
        update.add_column("price", DecimalType(9, 2))
    await same(tables, settings, topic)


async def test_another_table_is_none(
    tables: IcebergTables, files: TopicFiles, settings: CatalogSettings
) -> None:
    await first_commit(tables, files)
    assert plain_view(settings, CLUSTER, "another") is None
    assert plain_view(settings, "another-cluster", files.topic.topic) is None


async def test_of_what_is_not_plain_nothing_is_said(
    tables: IcebergTables, files: TopicFiles, settings: CatalogSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await first_commit(tables, files)
    topic = files.topic.topic
    with pytest.raises(NotPlain, match="another catalog"):
        plain_view(replace(settings, uri="postgresql://x/y"), CLUSTER, topic)
    assert plain_view(replace(settings, uri=f"{settings.uri}-none"), CLUSTER, topic) is None
    with monkeypatch.context() as few:
        few.setattr(plain, "MOST_FILES", 0)
        with pytest.raises(NotPlain, match="many files"):
            plain_view(settings, CLUSTER, topic)
    with monkeypatch.context() as unsaid:
        unsaid.setattr(plain, "ENDS", "dray.unsaid")
        with pytest.raises(NotPlain, match="no ends"):
            plain_view(settings, CLUSTER, topic)
    damage(newest(await loaded(tables, files)).manifest_list, settings, topic)


def damage(location: str, settings: CatalogSettings, topic: str) -> None:
    manifests = Path(location.removeprefix("file://"))
    whole = manifests.read_bytes()
    for damaged in (b"", whole[:-20], whole[:-1] + b"x", b"Obj\x02" + whole[4:]):
        manifests.write_bytes(damaged)
        with pytest.raises(NotPlain):
            plain_view(settings, CLUSTER, topic)


def test_the_columns_of_the_log() -> None:
    assert {each.field_id: each.name for each in COLUMNS.fields} == plain.SOURCES
    kinds = {each.name: str(each.field_type) for each in COLUMNS.fields}
    made = plain.no_table_yet("orders", UUID(int=1)).columns
    assert {each.name: each.kind for each in made} == {**kinds, "headers": "list"}
