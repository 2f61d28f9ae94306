"""How tiered storage names its objects: which segment of which partition an object belongs to.

Apache's LocalTieredStorage: `<topic>-<partition>-<topic id>/<20 digits>-<segment id>.<suffix>`.
Aiven's plugin, version 1: `<prefix><topic>-<topic id>/<partition>/<20 digits>-<segment id>.<suffix>`.
"""

from __future__ import annotations

import binascii
import re
from base64 import urlsafe_b64decode
from typing import Final, NamedTuple
from uuid import UUID

_ID: Final = r"[A-Za-z0-9_-]{22}"
_TOPIC: Final = r"[A-Za-z0-9._-]{1,249}"
_FILE: Final = rf"(?P<base>[0-9]{{20}})-(?P<segment>{_ID})\.(?P<suffix>[a-z_-]+)"
_LOCAL: Final = re.compile(rf"(?:.*/)?(?P<topic>{_TOPIC})-(?P<partition>[0-9]{{1,7}})-(?P<id>{_ID})/{_FILE}")
_AIVEN: Final = re.compile(rf"(?:.*/)?(?P<topic>{_TOPIC})-(?P<id>{_ID})/(?P<partition>[0-9]{{1,7}})/{_FILE}")

LOCAL_SUFFIXES: Final = frozenset(
    {"log", "index", "timeindex", "snapshot", "leader_epoch_checkpoint", "txnindex"}
)
AIVEN_SUFFIXES: Final = frozenset({"log", "indexes", "rsm-manifest"})


class TieredName(NamedTuple):
    topic: str
    topic_id: UUID
    partition: int
    base_offset: int
    segment_id: UUID
    suffix: str


def parse_local(path: str) -> TieredName | None:
    """None for an object that is not of this layout."""
    return _parsed(_LOCAL, LOCAL_SUFFIXES, path)


def parse_aiven(path: str, prefix: str = "") -> TieredName | None:
    """The plugin writes the topic right behind its prefix, which may not end in a slash."""
    return _parsed(_AIVEN, AIVEN_SUFFIXES, path.removeprefix(prefix)) if path.startswith(prefix) else None


def kafka_uuid(text: str) -> UUID:
    """An id as Kafka writes it: base64 for URLs, without padding. Raises `ValueError`."""
    try:
        return UUID(bytes=urlsafe_b64decode(text + "=="))
    except binascii.Error as error:
        raise ValueError(str(error)) from error


def _parsed(layout: re.Pattern[str], suffixes: frozenset[str], path: str) -> TieredName | None:
    found = layout.fullmatch(path)
    if found is None or found["suffix"] not in suffixes or int(found["base"]) >= 2**63:
        return None
    return TieredName(
        found["topic"],
        kafka_uuid(found["id"]),
        int(found["partition"]),
        int(found["base"]),
        kafka_uuid(found["segment"]),
        found["suffix"],
    )
