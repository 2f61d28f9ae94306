"""Metadata files in S3, small ones in one request.

pyiceberg opens every file it writes as a multipart upload: three requests for a few kilobytes. pyarrow can
wait until it knows the size, if its file system is made with that option. It also takes a private certificate
authority, for which pyiceberg has no property.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from pyarrow.fs import FileSystem, S3FileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

IMPLEMENTATION: Final = f"{__name__}.CloudFiles"
CA_FILE: Final = "dray.ca-file"


class CloudFiles(PyArrowFileIO):
    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        made = self.fs_by_scheme

        def tuned(scheme: str, host: str | None) -> FileSystem:
            return _tuned(made(scheme, host), properties.get(CA_FILE))

        self.fs_by_scheme = lru_cache(tuned)


def _tuned(system: FileSystem, ca_file: str | None) -> FileSystem:
    """The same file system but for these settings: what it was made of is what it is pickled as."""
    if not isinstance(system, S3FileSystem):
        return system
    options: dict[str, Any] = system.__reduce__()[1][0]
    changed = {"allow_delayed_open": True} | ({"tls_ca_file_path": ca_file} if ca_file else {})
    return S3FileSystem(**{**options, **changed})
