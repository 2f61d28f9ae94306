"""Files of tables in a cloud: what is asked of the object store's client, and which credentials it has."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import MemoryStore

from dray.tables.iceberg import cloud_files
from dray.tables.iceberg.cloud_files import CloudFiles
from dray.tables.iceberg.locations import locations

OWN = {"access_key_id": "own", "secret_access_key": "own secret"}
METADATA = "s3://lake/dray/iceberg/topic=orders/metadata/0.json"
DATA = "s3://lake/dray/compaction/v1/0.parquet"


@dataclass
class Clients:
    """All have the same objects. Notes which requests are made, and with whose credentials."""

    store: MemoryStore = field(default_factory=MemoryStore)
    asked: list[str] = field(default_factory=list)
    credentials: list[Mapping[str, Any]] = field(default_factory=list)

    def make(self, secrets: Mapping[str, str], giver: Any = None) -> Any:
        self.credentials.append(dict(secrets) if giver is None else giver())
        return self

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return getattr(self.store, name)


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> Clients:
    made = Clients()
    monkeypatch.setattr(cloud_files, "client_maker", lambda *_: (made.make, None))
    cloud_files._client.cache_clear()
    return made


def opened(vended: Mapping[str, str] | None = None, url: str = "s3://lake/dray") -> CloudFiles:
    given = dict(locations(url, {"account_name": "acme"} if url.startswith("az:") else {}, OWN).properties)
    return CloudFiles(given | dict(vended or {}))


def test_metadata_is_written_and_read_in_one_request_each(clients: Clients) -> None:
    files = opened()
    with files.new_output(METADATA).create(overwrite=True) as stream:
        stream.write(b"one ")
        stream.write(b"two")
    with files.new_input(METADATA).open() as stream:
        assert stream.read() == b"one two"
    assert clients.asked == ["put", "get"]
    assert clients.credentials == [OWN]
    assert bytes(clients.store.get("iceberg/topic=orders/metadata/0.json").bytes()) == b"one two"


def test_a_file_is_read_in_pieces_by_who_asks_for_pieces(clients: Clients) -> None:
    clients.store.put("iceberg/a", bytes(range(100)))
    with opened().new_input("s3://lake/dray/iceberg/a").open() as stream:
        assert stream.seek(-10, io.SEEK_END) == 90
        assert stream.read(4) == bytes(range(90, 94))
        assert stream.tell() == 94
        assert stream.read() == bytes(range(94, 100))
        assert stream.read(5) == b""
        stream.seek(2)
        assert stream.seek(3, io.SEEK_CUR) == 5
        assert stream.read(1) == bytes([5])
    assert clients.asked == ["head", "get_range", "get_range", "get_range"]


def test_what_is_missing_and_what_is_there(clients: Clients) -> None:
    files = opened()
    assert not files.new_input(METADATA).exists()
    with pytest.raises(FileNotFoundError, match="no such object"):
        files.new_input(METADATA).open().read()
    files.delete(METADATA)
    files.new_output(METADATA).create().close()
    assert files.new_output(METADATA).to_input_file().exists()
    with pytest.raises(FileExistsError):
        files.new_output(METADATA).create()
    files.delete(files.new_input(METADATA))
    assert not files.new_input(METADATA).exists()


def test_what_lies_elsewhere_is_left_to_pyiceberg(clients: Clients, tmp_path: Any) -> None:
    with opened().new_output(f"file://{tmp_path}/a").create() as stream:
        stream.write(b"here")
    assert opened().new_input(f"file://{tmp_path}/a").open().read() == b"here"
    assert clients.asked == []


def test_a_dataset_is_scanned_more_than_once(clients: Clients) -> None:
    for number in range(3):
        written = io.BytesIO()
        pq.write_table(pa.table({"offset": range(number * 10, number * 10 + 10)}), written)
        clients.store.put(f"compaction/v1/{number}", written.getvalue())
    found = opened().dataset([f"s3://lake/dray/compaction/v1/{number}" for number in range(3)])
    for _ in range(2):
        assert sorted(found.to_table().column("offset").to_pylist()) == list(range(30))


VENDED = {
    "s3://lake/dray": (
        {
            "s3.access-key-id": "v",
            "s3.secret-access-key": "w",
            "s3.session-token": "x",
            "s3.endpoint": "http://e",
        },
        {"access_key_id": "v", "secret_access_key": "w", "session_token": "x"},
    ),
    "gs://lake/dray": ({"gcs.oauth2.token": "v"}, {"token": "v", "expires_at": None}),
    "az://lake/dray": (
        {"adls.sas-token.acme.dfs.core.windows.net": "v", "adls.sas-token-expires-at-ms.acme": "1"},
        {"sas_key": "v"},
    ),
}


@pytest.mark.parametrize("url", VENDED)
def test_vended_credentials_serve_for_metadata_and_the_logs_own_for_its_files(
    clients: Clients, url: str
) -> None:
    given, expected = VENDED[url]
    root = locations(url, {"account_name": "acme"}, {}).root
    files = opened(given, url)
    for path in ("iceberg/a", "compaction/v1/b"):
        clients.store.put(path, b"x")
        assert files.new_input(root + path).exists()
    assert clients.credentials == [expected, OWN]


def test_clients_are_shared_as_long_as_the_credentials_are_the_same(clients: Clients) -> None:
    for number in range(3):
        opened().new_output(f"{METADATA}{number}").create(overwrite=True).close()
    opened({"gcs.oauth2.token": "of another cloud"}).new_input(METADATA).exists()
    assert clients.credentials == [OWN]
    opened({"s3.access-key-id": "v", "s3.secret-access-key": "w"}).new_input(METADATA).exists()
    assert clients.credentials[1:] == [{"access_key_id": "v", "secret_access_key": "w"}]
