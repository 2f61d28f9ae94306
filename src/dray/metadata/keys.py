"""The key schema: every key Dray writes, built here and nowhere else.

Keys start with `/dray/v1/`; names in them are percent-encoded, so that no name can reach into
another's keys; numbers are zero-padded to 20 digits, so that byte order is number order.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote
from uuid import UUID
from zlib import crc32

ROOT: Final = "/dray/v1/"

# The domain of keys that belong to no stream: the cluster, its topics, its counters.
CLUSTER_DOMAIN: Final = 0


def domain_of_stream(stream: int, domains: int) -> int:
    """Stream ids come from one counter, so the remainder spreads a topic's partitions evenly."""
    return stream % domains


def number(value: int) -> str:
    if not 0 <= value < 10**20:
        raise ValueError(f"{value} does not fit a 20-digit key part")
    return f"{value:020d}"


def name(text: str) -> str:
    return quote(text, safe="")


def parse_name(part: str) -> str:
    return unquote(part)


def prefix_end(prefix: str) -> str:
    """The least key above every key that starts with `prefix`: the end of a scan over it."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


# --- the cluster

CLUSTER: Final = f"{ROOT}cluster"
BROKERS: Final = f"{ROOT}brokers/"
TOPICS: Final = f"{ROOT}topics/"
DELETED_TOPICS: Final = f"{ROOT}deleted-topics/"
STREAM_COUNTER: Final = f"{ROOT}counters/streams"
PRODUCER_COUNTER: Final = f"{ROOT}counters/producers"


def broker(broker_id: int) -> str:
    return f"{BROKERS}{number(broker_id)}"


def topic(topic_name: str) -> str:
    return f"{TOPICS}{name(topic_name)}"


def deleted_topic(topic_id: UUID) -> str:
    return f"{DELETED_TOPICS}{topic_id.hex}"


# --- streams

STREAMS: Final = f"{ROOT}streams/"
HIGH_WATERMARK: Final = "hwm"
START: Final = "start"


def stream(stream_id: int) -> str:
    return f"{STREAMS}{number(stream_id)}/"


def high_watermark(stream_id: int) -> str:
    return f"{stream(stream_id)}{HIGH_WATERMARK}"


def start(stream_id: int) -> str:
    return f"{stream(stream_id)}{START}"


def producers(stream_id: int) -> str:
    return f"{stream(stream_id)}producers"


def offset_index(stream_id: int) -> str:
    return f"{stream(stream_id)}offset-index/"


def index_entry(stream_id: int, end: int, cumulative_size: int) -> str:
    return f"{offset_index(stream_id)}{number(end)}/{number(cumulative_size)}"


def index_from(stream_id: int, end: int) -> str:
    """At or below every index key whose end offset is `end` or more."""
    return f"{offset_index(stream_id)}{number(end)}"


def part_of_stream(key: str) -> tuple[int, str]:
    """The stream and what follows it in the key; -1 and nothing for a key that is no stream's."""
    if not key.startswith(STREAMS):
        return -1, ""
    number_part, _, part = key.removeprefix(STREAMS).partition("/")
    return (int(number_part), part) if number_part.isdecimal() else (-1, "")


JOBS: Final = f"{ROOT}compaction/"


def job(stream_id: int) -> str:
    return f"{JOBS}{number(stream_id)}/job"


def stream_of_job(key: str) -> int:
    return int(key.removeprefix(JOBS).partition("/")[0])


# --- groups

GROUPS: Final = f"{ROOT}groups/"
GROUP_LEASES: Final = f"{ROOT}group-leases/"
GROUP_CONFIGS: Final = f"{ROOT}group-configs/"


def domain_of_group(group: str, domains: int) -> int:
    """A group's record, lease and offsets share a domain. The function is part of the stored format."""
    return crc32(group.encode()) % domains


def group(group_id: str) -> str:
    """The one record of a group."""
    return f"{GROUPS}{name(group_id)}"


def group_lease(group_id: str) -> str:
    return f"{GROUP_LEASES}{name(group_id)}"


def group_configs(group_id: str) -> str:
    """In the cluster's domain: every broker follows all of them."""
    return f"{GROUP_CONFIGS}{name(group_id)}"


def group_offsets(group_id: str) -> str:
    """Apart from the records, so that listing groups does not walk through their offsets."""
    return f"{ROOT}group-offsets/{name(group_id)}/"


def group_offset(group_id: str, topic_name: str, partition: int) -> str:
    return f"{group_offsets(group_id)}{name(topic_name)}/{number(partition)}"


# --- WAL objects

STAGING: Final = f"{ROOT}wal/staging/"
OBJECTS: Final = f"{ROOT}wal/objects/"
REFERENCES: Final = f"{ROOT}wal/refs/"


def staging(wal_id: UUID) -> str:
    return f"{STAGING}{wal_id.hex}"


def wal_object(wal_id: UUID) -> str:
    return f"{OBJECTS}{wal_id.hex}"


def references(wal_id: UUID) -> str:
    return f"{REFERENCES}{wal_id.hex}/"


def reference(wal_id: UUID, stream_id: int) -> str:
    return f"{references(wal_id)}{number(stream_id)}"


def wal_id_of(key: str) -> UUID:
    """The WAL id in a staging, object or reference key."""
    return UUID(hex=key.split("/")[5])
