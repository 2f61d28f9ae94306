"""Where a WAL object lives in the object store, and what its path says about it.

    wal/v1/zone=<zone>/domain=<domain>/date=YYYY/MM/DD/<wal id>.wo

The zone and the date are there for people. No reader goes by them: the path is kept in the metadata.
The audit of the bucket goes by the domain and the id.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, unquote
from uuid import UUID

PREFIX = "wal/v1/"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_PATH = re.compile(
    rf"wal/v1/zone=([^/]*)/domain=(0|[1-9][0-9]{{0,9}})/date=[0-9]{{4}}/[0-9]{{2}}/[0-9]{{2}}/({_ID})\.wo"
)


@dataclass(frozen=True, slots=True)
class WalPath:
    zone: str
    domain: int
    wal_id: UUID


def object_path(zone: str, domain: int, created_ms: int, wal_id: UUID) -> str:
    """`created_ms` gives the date, in UTC."""
    day = _EPOCH + timedelta(milliseconds=created_ms)
    return f"{PREFIX}zone={quote(zone, safe='')}/domain={domain}/date={day:%Y/%m/%d}/{wal_id}.wo"


def parse_object_path(path: str) -> WalPath | None:
    """None for a path that no WAL object has: something foreign, to be left alone."""
    matched = _PATH.fullmatch(path)
    if matched is None:
        return None
    zone, domain, wal_id = matched.groups()
    return WalPath(unquote(zone), int(domain), UUID(wal_id))
