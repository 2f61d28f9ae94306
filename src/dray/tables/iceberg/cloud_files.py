"""Files of tables in a cloud, through the object store's own client: its options, credentials and addresses.

pyiceberg has a client of its own for each cloud. They know other options and other sources of credentials
than the log's client, one of them takes Azure's addresses apart wrongly, and another sends checksums that not
every server understands.

A catalog may vend credentials with a table. They serve for the table's metadata, which is what a catalog can
know of; the log's files are read with the log's own.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from typing import Any, Final

import pyarrow.dataset as ds
from pyiceberg.io import InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from dray.objects.contract import ObjectError, ObjectMissing
from dray.objects.remote.failures import RemoteFailure, translated_errors
from dray.objects.remote.providers import client_maker
from dray.tables.iceberg.locations import METADATA_PREFIX, STORE

IMPLEMENTATION: Final = f"{__name__}.CloudFiles"

_VENDED: Final[Mapping[str, Mapping[str, str]]] = {
    # The names of the REST catalogs' specification, and those of the client.
    "s3": {
        "s3.access-key-id": "access_key_id",
        "s3.secret-access-key": "secret_access_key",
        "s3.session-token": "session_token",
    },
    "gs": {"gcs.oauth2.token": "token"},
    "az": {"adls.sas-token": "sas_key", "adls.account-key": "account_key"},
}
_REFUSED: Final = {401, 403}
_CLIENTS: Final = 8


class CloudFiles(PyArrowFileIO):
    """Files outside of the object store are left to pyiceberg."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        self._store: str = properties[STORE]
        store = json.loads(self._store)
        self._root: str = store["root"]
        self._vended = vended(store["url"].partition(":")[0], properties)

    def new_input(self, location: str) -> Any:
        found = self._file(location)
        return super().new_input(location) if found is None else found

    def new_output(self, location: str) -> Any:
        found = self._file(location)
        return super().new_output(location) if found is None else found

    def delete(self, location: str | InputFile | OutputFile) -> None:
        name = location if isinstance(location, str) else location.location
        found = self._file(name)
        if found is None:
            super().delete(location)
        else:
            found.delete()

    def dataset(self, locations: Sequence[str]) -> Any:
        """Parquet files as Arrow reads them, a piece at a time."""
        kind = ds.ParquetFileFormat()
        fragments = [kind.make_fragment(self.new_input(location).open()) for location in locations]
        return ds.FileSystemDataset(fragments, fragments[0].physical_schema, kind)

    def _file(self, location: str) -> CloudFile | None:
        if not location.startswith(self._root):
            return None
        path = location.removeprefix(self._root)
        given = self._vended if path.startswith(METADATA_PREFIX) else frozenset()
        return CloudFile(location, path, _client(self._store, given))


def vended(provider: str, properties: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """The credentials among the properties, as the client calls them. The object store's own are not there
    under these names. Of Azure's each may name its account."""
    found = {}
    for theirs, ours in _VENDED[provider].items():
        for name, value in properties.items():
            if value and (name == theirs or (provider == "az" and name.startswith(theirs + "."))):
                found[ours] = value
    return frozenset(found.items())


class CloudFile(InputFile, OutputFile):
    """Written in one request, and read whole in one where its reader asks for all of it."""

    def __init__(self, location: str, path: str, client: Any) -> None:
        super().__init__(location)
        self._path = path
        self._client = client

    def __len__(self) -> int:
        with as_os_errors("head", self._path):
            return int(self._client.head(self._path)["size"])

    def exists(self) -> bool:
        try:
            len(self)
        except FileNotFoundError:
            return False
        return True

    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002
        return _Reader(self)

    def create(self, overwrite: bool = False) -> OutputStream:
        if not overwrite and self.exists():
            raise FileExistsError(f"{self.location}: there is a file already")
        return _Writer(self)

    def to_input_file(self) -> CloudFile:
        return self

    def delete(self) -> None:
        """A file that is not there counts as deleted: S3 says no more than that, so nobody needs more."""
        with suppress(FileNotFoundError), as_os_errors("delete", self._path):
            self._client.delete(self._path)

    def all(self) -> bytes:
        with as_os_errors("get", self._path):
            return bytes(self._client.get(self._path).bytes())

    def range(self, start: int, length: int) -> bytes:
        with as_os_errors("get", self._path):
            return bytes(self._client.get_range(self._path, start=start, length=length))

    def put(self, data: bytes) -> None:
        with as_os_errors("put", self._path):
            self._client.put(self._path, data, use_multipart=False)


class _Reader(io.RawIOBase):
    def __init__(self, file: CloudFile) -> None:
        super().__init__()
        self._file = file
        self._size: int | None = None
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place}
        self._place = max(0, offset + (base[whence] if whence in base else self._length()))
        return self._place

    def read(self, size: int | None = -1) -> bytes:
        if (size is None or size < 0) and self._place == 0:
            data = self._file.all()
            self._size = len(data)
        else:
            data = self._range(self._length() - self._place if size is None or size < 0 else size)
        self._place += len(data)
        return data

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _range(self, wanted: int) -> bytes:
        length = min(wanted, self._length() - self._place)
        return self._file.range(self._place, length) if length > 0 else b""

    def _length(self) -> int:
        if self._size is None:
            self._size = len(self._file)
        return self._size


class _Writer(io.BytesIO):
    """Metadata files are small: they are sent when they are closed."""

    def __init__(self, file: CloudFile) -> None:
        super().__init__()
        self._file = file

    def close(self) -> None:
        if self.closed:
            return
        data = self.getvalue()
        super().close()
        self._file.put(data)


@lru_cache(maxsize=_CLIENTS)
def _client(store: str, given: frozenset[tuple[str, str]]) -> Any:
    """With the credentials that were vended in place of the store's own, if there are any."""
    wanted = json.loads(store)
    make, _ = client_maker(wanted["url"], wanted["options"])
    secrets = dict(given) or wanted["secrets"]
    token = secrets.pop("token", None) if given else None
    return make(secrets) if token is None else make(secrets, lambda: {"token": token, "expires_at": None})


@contextmanager
def as_os_errors(action: str, path: str) -> Iterator[None]:
    """As pyiceberg and its callers expect them: in one line, which is free of credentials."""
    try:
        with translated_errors(action, path):
            yield
    except ObjectMissing as error:
        raise FileNotFoundError(str(error)) from None
    except RemoteFailure as error:
        kind = PermissionError if error.status in _REFUSED else OSError
        raise kind(f"{error}: {error.advice}") from None
    except ObjectError as error:
        raise OSError(str(error)) from None
