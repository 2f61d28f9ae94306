"""Metadata files on a local disk, durable before the catalog names them.

pyiceberg's own file access leaves what it wrote to the page cache. The catalog's database does sync: after a
power cut it would name a metadata file that is not there, and the table would be lost while the log is whole.
"""

from __future__ import annotations

import os
from io import BytesIO
from pathlib import Path
from typing import Final

from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

IMPLEMENTATION: Final = f"{__name__}.LocalFiles"
"""As the property `py-io-impl` of a catalog wants it."""


class LocalFiles(PyArrowFileIO):
    def new_output(self, location: str) -> PyArrowFile:
        scheme, host, path = self.parse_location(location, self.properties)
        if scheme != "file":
            return super().new_output(location)
        return _DurableFile(fs=self.fs_by_scheme(scheme, host), location=location, path=path)


class _DurableFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> OutputStream:
        if not overwrite and self.exists():
            raise FileExistsError(f"{self.location}: there is a file already")
        return _Stream(Path(self._path))


class _Stream(BytesIO):
    """Metadata files are small: they are written at once, under a passing name, when they are closed."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def close(self) -> None:
        if self.closed:
            return
        data = self.getvalue()
        super().close()
        _write_durably(self._path, data)


def _write_durably(path: Path, data: bytes) -> None:
    _make_directories(path.parent)
    passing = path.with_name(f".{path.name}.writing")
    descriptor = os.open(passing, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(passing, path)
    _sync_directory(path.parent)


def _make_directories(path: Path) -> None:
    if path.is_dir():
        return
    _make_directories(path.parent)
    path.mkdir(exist_ok=True)
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
