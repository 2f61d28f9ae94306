"""Settings of the tables: where files lie, what pyiceberg is told, and what is refused in one line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.services.iceberg_files import TopicFiles
from tests.unit.tables.iceberg.harness import CLUSTER, loaded

from dray.base.runtime.system import SystemRuntime
from dray.log.parquet.writer import FIELD_IDS, HEADER_ID, HEADER_KEY_ID, HEADER_VALUE_ID
from dray.tables.contract import TablesUnavailable
from dray.tables.iceberg.catalogs import answering, catalog_properties, open_catalog
from dray.tables.iceberg.local_files import LocalFiles
from dray.tables.iceberg.locations import STORE, Locations, locations, table_path
from dray.tables.iceberg.settings import CatalogSettings, SettingsRefused
from dray.tables.iceberg.tables import IcebergTables

LOCAL = locations("file:/srv/objects", {}, {})
S3 = locations(
    "s3://lake/dray/",
    {"region": "eu-west-1", "endpoint": "http://127.0.0.1:9000", "path_style": "true", "timeout": "5s"},
    {"access_key_id": "ID", "secret_access_key": "SECRET"},
)


class TestLocations:
    def test_of_a_local_store(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        found = locations("file:data/objects", {}, {})
        assert found.location_of("a/b.parquet") == f"file://{tmp_path}/data/objects/a/b.parquet"
        assert found.path_of(f"file://{tmp_path}/data/objects/a/b.parquet") == "a/b.parquet"
        assert found.path_of(f"file:{tmp_path}/data/objects/a/b.parquet") == "a/b.parquet"  # as Java has it
        assert found.path_of("file:///elsewhere/a") is None
        assert locations(f"file://{tmp_path}/data/objects", {}, {}) == found

    def test_of_s3_with_its_credentials(self) -> None:
        assert S3.location_of("a/b") == "s3://lake/dray/a/b"
        assert json.loads(S3.properties[STORE]) == {
            "root": "s3://lake/dray/",
            "url": "s3://lake/dray/",
            "options": {
                "region": "eu-west-1",
                "endpoint": "http://127.0.0.1:9000",
                "path_style": "true",
                "timeout": "5s",
            },
            "secrets": {"access_key_id": "ID", "secret_access_key": "SECRET"},
        }
        assert "SECRET" not in repr(S3)

    def test_of_the_other_clouds(self) -> None:
        assert locations("gs://lake/x", {}, {}).location_of("a") == "gs://lake/x/a"
        azure = locations("az://box/x", {"account_name": "acme"}, {"account_key": "KEY"})
        assert azure.location_of("a") == "abfss://box@acme.dfs.core.windows.net/x/a"
        with pytest.raises(SettingsRefused, match=r"objects\.options\.account_name"):
            locations("az://box/x", {}, {})

    def test_memory_cannot_be_shared(self) -> None:
        with pytest.raises(SettingsRefused, match=r"use another one, or set iceberg\.enabled to false"):
            locations("memory:", {}, {})

    def test_of_a_table(self) -> None:
        from uuid import UUID

        assert table_path("a.b_c-d", UUID(int=5)) == f"iceberg/topic=a.b_c-d/id={'0' * 31}5"


class TestSettings:
    @pytest.mark.parametrize(
        ("kind", "uri", "options", "line"),
        [
            ("rest", None, {}, "iceberg.uri: a catalog of type rest needs one"),
            ("rest", "localhost:8181", {}, "starts with http:// or https://"),
            ("sql", "/srv/catalog", {}, "a SQL catalog has a database address"),
            ("sql", "sqlite:///c", {"sigv4_region": "eu-west-1"}, "only a REST catalog"),
            (
                "rest",
                "http://c",
                {"sigv4_region": "eu-west-1", "secrets": {"token": "T"}},
                "requests carry one of the two",
            ),
            (
                "rest",
                "http://c",
                {"sigv4_region": "eu-west-1", "secrets": {"credential": "T"}},
                "requests carry one of the two",
            ),
            ("rest", "http://c", {"options": {"token": "T"}, "secrets": {"token": "T"}}, "as well"),
            ("rest", "http://c", {"options": {"s3.endpoint": "http://e"}}, "it belongs into objects.options"),
            ("rest", "http://c", {"secrets": {"adls.account-key": "T"}}, "objects.secrets, by the name"),
        ],
    )
    def test_refused(self, kind: Any, uri: str | None, options: dict[str, Any], line: str) -> None:
        with pytest.raises(SettingsRefused) as caught:
            CatalogSettings(kind, uri, "lake", **options)
        assert line in str(caught.value)
        assert "'T'" not in str(caught.value)

    def test_glue_has_no_namespaces_in_namespaces(self) -> None:
        with pytest.raises(SettingsRefused, match=r"iceberg\.namespace = company\.lake: Glue has databases"):
            CatalogSettings("glue", None, "company.lake")

    def test_names(self) -> None:
        settings = CatalogSettings("sql", "sqlite:///c", "company.lake")
        assert settings.identifier("a.b") == ("company", "lake", "a.b")

    def test_of_a_sqlite_catalog(self) -> None:
        settings = CatalogSettings("sql", "sqlite:////srv/c.sqlite", "lake", timeout_seconds=12)
        properties = catalog_properties(settings, LOCAL)
        assert properties == {
            "uri": "sqlite:////srv/c.sqlite?timeout=12",
            "warehouse": "file:///srv/objects",
            "py-io-impl": "dray.tables.iceberg.local_files.LocalFiles",
        }

    def test_of_a_rest_catalog_with_a_token(self) -> None:
        settings = CatalogSettings("rest", "https://c", "lake", {"prefix": "p"}, {"token": "TOKEN"})
        assert catalog_properties(settings, S3) == {
            **S3.properties,
            "py-io-impl": "dray.tables.iceberg.cloud_files.CloudFiles",
            "uri": "https://c",
            "prefix": "p",
            "token": "TOKEN",
        }
        assert "TOKEN" not in repr(settings)

    def test_of_a_rest_catalog_with_signed_requests(self) -> None:
        settings = CatalogSettings(
            "rest", "https://glue.eu-west-1.amazonaws.com/iceberg", "lake", sigv4_region="eu-west-1"
        )
        properties = catalog_properties(settings, S3)
        assert properties["rest.sigv4-enabled"] == "true"
        assert (properties["rest.signing-region"], properties["rest.signing-name"]) == ("eu-west-1", "glue")
        assert properties["rest.sigv4.max-retries"] == "0"

    def test_of_glue(self) -> None:
        settings = CatalogSettings("glue", None, "lake", {"glue.region": "eu-west-1"})
        properties = catalog_properties(settings, S3)
        assert properties["glue.region"] == "eu-west-1"
        assert properties["glue.max-retries"] == "0"
        assert properties["warehouse"] == "s3://lake/dray"

    @pytest.mark.parametrize("retries", ["many", "-1", "1.5"])
    def test_retries_of_glue_are_a_number(self, retries: str) -> None:
        settings = CatalogSettings("glue", None, "lake", {"glue.max-retries": retries})
        with pytest.raises(SettingsRefused, match=rf"glue\.max-retries = '{retries}': it is a number"):
            open_catalog(settings, LOCAL)

    def test_a_missing_driver_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in [name for name in sys.modules if name.split(".")[0] == "sqlalchemy"]:
            monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.setitem(sys.modules, "pyiceberg.catalog.sql", None)
        with pytest.raises(SettingsRefused, match=r"pip install 'pyiceberg\[sql-sqlite\]'"):
            open_catalog(CatalogSettings("sql", "sqlite:///c", "lake"), LOCAL)

    @pytest.mark.parametrize(
        ("settings", "what"),
        [
            (CatalogSettings("glue", None, "lake"), "iceberg.catalog = glue"),
            (CatalogSettings("rest", "http://c", "lake", sigv4_region="r"), "iceberg.sigv4_region"),
        ],
    )
    def test_without_boto3_nothing_is_begun(
        self, settings: CatalogSettings, what: str, monkeypatch: pytest.MonkeyPatch, runtime: SystemRuntime
    ) -> None:
        """When the tables are made, and not in the middle of a job, hours later."""
        monkeypatch.setitem(sys.modules, "boto3", None)
        with pytest.raises(SettingsRefused) as caught:
            IcebergTables(settings, LOCAL, "cluster-one", runtime)
        assert str(caught.value).startswith(
            f"{what}: it needs the Python package boto3; install it with: pip"
        )
        IcebergTables(CatalogSettings("rest", "http://c", "lake"), LOCAL, "cluster-one", runtime)


def test_the_ids_of_columns_are_those_of_the_files() -> None:
    from dray.tables.iceberg.schema import COLUMNS

    assert {field.name: field.field_id for field in COLUMNS.fields} == FIELD_IDS
    assert COLUMNS.find_field("headers.element").field_id == HEADER_ID
    assert COLUMNS.find_field("headers.key").field_id == HEADER_KEY_ID
    assert COLUMNS.find_field("headers.value").field_id == HEADER_VALUE_ID


def test_metadata_on_a_local_disk_is_synced_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, rename = os.fsync, os.rename

    def synced(descriptor: int) -> None:
        steps.append(f"sync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name}")
        fsync(descriptor)

    def renamed(old: Path, new: Path) -> None:
        steps.append(f"rename to {new.name}")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    output = LocalFiles().new_output(f"file://{tmp_path}/deep/er/v1.json")
    with output.create() as stream:
        stream.write(b"one ")
        stream.write(b"two")
    assert steps == [
        f"sync {tmp_path.name}",
        "sync deep",
        "sync .v1.json.writing",
        "rename to v1.json",
        "sync er",
    ]
    assert (tmp_path / "deep" / "er" / "v1.json").read_bytes() == b"one two"
    assert len(output) == 7
    with pytest.raises(FileExistsError):
        output.create()


def test_failures_become_one_line() -> None:
    with pytest.raises(TablesUnavailable) as caught, answering("no catalog"):
        raise ConnectionError("refused\nand much more")
    assert str(caught.value) == "no catalog: refused"


def test_a_catalog_that_does_not_answer(places: Locations) -> None:
    settings = CatalogSettings("rest", "http://127.0.0.1:9", "lake", timeout_seconds=2)
    with pytest.raises(TablesUnavailable, match="the catalog cannot be opened"):
        open_catalog(settings, places)


async def test_a_catalog_is_opened_anew_when_the_credentials_have_changed(
    settings: CatalogSettings, places: Locations, files: TopicFiles, runtime: SystemRuntime
) -> None:
    """What a table's files are read with is made with its catalog. What cannot be read changes nothing."""
    given = {"access": "first"}

    def read() -> Mapping[str, str]:
        if not given:
            raise ValueError("they are being replaced")
        return given

    tables = IcebergTables(settings, replace(places, read_properties=read), CLUSTER, runtime)
    try:
        await tables.ensure(files.topic)
        assert (await loaded(tables, files)).io.properties["access"] == "first"
        given["access"] = "second"
        assert (await loaded(tables, files)).io.properties["access"] == "second"
        given.clear()
        assert (await loaded(tables, files)).io.properties["access"] == "second"
    finally:
        await tables.close()
