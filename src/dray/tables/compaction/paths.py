"""The paths of compaction's files.

    compaction/v1/topic=<name>/id=<topic id>/partition=<p>/stream=<s>/job-<number>-<attempt id>.parquet
    compaction/v1/topic=<name>/id=<topic id>/partition=<p>/stream=<s>/keys-<number>-<attempt id>.keys

The collector goes by topic id, stream and job; the topic's name and the partition are for people. The
second ones are the keys of cleaning rounds, with the number of the job before. The
topic's id keeps the files of a deleted topic apart from those of another one with the same name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote
from uuid import UUID

PREFIX = "compaction/v1/"
TABLES_PREFIX = "iceberg/"
"""Below it lie the metadata files of tables, each table's in a folder topic=<name>/id=<topic id>/."""

_NUMBER = "0|[1-9][0-9]{0,19}"
_HEX = "[0-9a-f]{32}"
_PATH = re.compile(
    rf"compaction/v1/topic=([^/]+)/id=({_HEX})/partition=({_NUMBER})/stream=({_NUMBER})"
    rf"/(?:job-({_NUMBER})-({_HEX})\.parquet|keys-({_NUMBER})-({_HEX})\.keys)"
)

_METADATA = re.compile(rf"iceberg/topic=([^/]+)/id=({_HEX})/.+")


@dataclass(frozen=True, slots=True)
class FilePath:
    topic: str
    topic_id: UUID
    partition: int
    stream: int
    job: int
    parquet_id: UUID


def topic_prefix(topic: str, topic_id: UUID) -> str:
    """The folder of all files of a topic."""
    return f"{PREFIX}topic={quote(topic, safe='')}/id={topic_id.hex}"


def unit_prefix(topic: str, topic_id: UUID, partition: int, stream: int) -> str:
    return f"{topic_prefix(topic, topic_id)}/partition={partition}/stream={stream}"


def file_path(prefix: str, job: int, parquet_id: UUID) -> str:
    """Each attempt has an id of its own, so that no two ever write the same path."""
    return f"{prefix}/job-{job}-{parquet_id.hex}.parquet"


def keys_path(prefix: str, job: int, attempt: UUID) -> str:
    return f"{prefix}/keys-{job}-{attempt.hex}.keys"


def parse_file_path(path: str) -> FilePath | None:
    """None for a path that no file of ours has: something foreign, to be left alone."""
    matched = _PATH.fullmatch(path)
    if matched is None:
        return None
    topic, topic_id, partition, stream, *number_and_id = matched.groups()
    job, attempt = [part for part in number_and_id if part is not None]
    return FilePath(
        unquote(topic), UUID(hex=topic_id), int(partition), int(stream), int(job), UUID(hex=attempt)
    )


def parse_metadata_path(path: str) -> tuple[str, UUID] | None:
    """The topic, by name and id, whose table's metadata lies there; None for something foreign."""
    matched = _METADATA.fullmatch(path)
    return None if matched is None else (unquote(matched[1]), UUID(hex=matched[2]))
