"""The key schema: every key Dray writes, built here and nowhere else.

Keys start with `/dray/v1/`; names in them are percent-encoded, so that no name can reach into
another's keys; numbers are zero-padded to 20 digits, so that byte order is number order.

Keys are taken apart here too, and nowhere else: a topic or a group may be called like any part of a key. The
functions that take one apart answer None for a key of another family, since watches and scans bring those as
well, and a newer build may have families that this one does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote
from uuid import UUID
from zlib import crc32

ROOT: Final = "/dray/v1/"

_DIGITS: Final = 20

# The domain of keys that belong to no stream: the cluster, its topics, its counters.
CLUSTER_DOMAIN: Final = 0


def domain_of_stream(stream: int, domains: int) -> int:
    """Stream ids come from one counter, so the remainder spreads a topic's partitions evenly."""
    return stream % domains


def number(value: int) -> str:
    if not 0 <= value < 10**20:
        raise ValueError(f"{value} does not fit a 20-digit key part")
    return f"{value:0{_DIGITS}d}"


def name(text: str) -> str:
    return quote(text, safe="")


def parse_name(part: str) -> str:
    return unquote(part)


def _number_of(part: str) -> int | None:
    return int(part) if len(part) == _DIGITS and part.isascii() and part.isdigit() else None


def _name_below(prefix: str, key: str) -> str | None:
    """The one name that follows the prefix."""
    part = key.removeprefix(prefix)
    return None if part == key or "/" in part else parse_name(part)


def _parts_below(prefix: str, key: str) -> list[str]:
    return key.removeprefix(prefix).split("/") if key.startswith(prefix) else []


def prefix_end(prefix: str) -> str:
    """The least key above every key that starts with `prefix`: the end of a scan over it."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


# --- the cluster

CLUSTER: Final = f"{ROOT}cluster"
TALLY: Final = f"{ROOT}tally"
BACKUP: Final = f"{ROOT}backup"
BROKERS: Final = f"{ROOT}brokers/"
CLOCKS: Final = f"{ROOT}clocks/"
TOPICS: Final = f"{ROOT}topics/"
DELETED_TOPICS: Final = f"{ROOT}deleted-topics/"
COMPACTION_REQUESTS: Final = f"{ROOT}compaction-requests/"
MIGRATIONS: Final = f"{ROOT}migrations/"
MIGRATION_LEASES: Final = f"{ROOT}migration-leases/"
STRAGGLERS: Final = f"{ROOT}stragglers/"
STREAM_COUNTER: Final = f"{ROOT}counters/streams"
PRODUCER_COUNTER: Final = f"{ROOT}counters/producers"


def broker(broker_id: int) -> str:
    return f"{BROKERS}{number(broker_id)}"


def broker_of(key: str) -> int | None:
    """The id in a broker's key."""
    match _parts_below(BROKERS, key):
        case [broker_id]:
            return _number_of(broker_id)
    return None


def clock(process: str) -> str:
    """The key of the time that the clock of a process shows."""
    return f"{CLOCKS}{process}"


def process_of_clock(key: str) -> str:
    return key.removeprefix(CLOCKS)


def topic(topic_name: str) -> str:
    return f"{TOPICS}{name(topic_name)}"


def topic_of(key: str) -> str | None:
    """The name in a topic's key."""
    return _name_below(TOPICS, key)


def deleted_topic(topic_id: UUID) -> str:
    return f"{DELETED_TOPICS}{topic_id.hex}"


def deleted_topic_of(key: str) -> UUID | None:
    """The topic's id in the key of a tombstone."""
    part = key.removeprefix(DELETED_TOPICS)
    try:
        topic_id = UUID(hex=part)
    except ValueError:
        return None
    return topic_id if key == deleted_topic(topic_id) else None


def compaction_request(topic_name: str) -> str:
    return f"{COMPACTION_REQUESTS}{name(topic_name)}"


def topic_of_compaction_request(key: str) -> str | None:
    """The topic's name in the key of a request."""
    return _name_below(COMPACTION_REQUESTS, key)


def migration(topic_name: str) -> str:
    """How far a topic that began elsewhere has come."""
    return f"{MIGRATIONS}{name(topic_name)}"


def migration_lease(topic_name: str) -> str:
    """Which migrator works on a topic."""
    return f"{MIGRATION_LEASES}{name(topic_name)}"


def topic_of_migration(key: str) -> str | None:
    """The topic's name in the key of a migration."""
    return _name_below(MIGRATIONS, key)


def stragglers(topic_name: str) -> str:
    """How far records that came late to the source of a topic were produced again."""
    return f"{STRAGGLERS}{name(topic_name)}"


# --- streams

STREAMS: Final = f"{ROOT}streams/"
HIGH_WATERMARK: Final = "hwm"
START: Final = "start"
CLEANED: Final = "cleaned"
WATCHED: Final = (f"/{HIGH_WATERMARK}", f"/{START}", f"/{CLEANED}")
"""The endings of the keys that say where a stream begins and ends."""


def stream(stream_id: int) -> str:
    return f"{STREAMS}{number(stream_id)}/"


def high_watermark(stream_id: int) -> str:
    return f"{stream(stream_id)}{HIGH_WATERMARK}"


def start(stream_id: int) -> str:
    return f"{stream(stream_id)}{START}"


def cleaned(stream_id: int) -> str:
    """Up to where the stream was compacted by key."""
    return f"{stream(stream_id)}{CLEANED}"


def producers(stream_id: int) -> str:
    return f"{stream(stream_id)}producers"


def epochs(stream_id: int) -> str:
    """The key of the offsets at which leader epochs began that a restore raised."""
    return f"{stream(stream_id)}epochs"


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


def stream_of(key: str) -> int | None:
    """The stream of any of a stream's own keys."""
    match _parts_below(STREAMS, key):
        case [stream_id, _, *_]:
            return _number_of(stream_id)
    return None


def stream_of_high_watermark(key: str) -> int | None:
    """Called for every change that a watch tells of."""
    if not key.endswith("/hwm"):
        return None
    match _parts_below(STREAMS, key):
        case [stream_id, _]:
            return _number_of(stream_id)
    return None


def end_of_index_entry(key: str) -> int | None:
    """The end offset in the key of an index entry."""
    match _parts_below(STREAMS, key):
        case [_, "offset-index", end, _]:
            return _number_of(end)
    return None


CLOSED: Final = f"{ROOT}closed-streams/"


def closed_on(day: int) -> str:
    """By the day (since the epoch) on which they were swept: the oldest come first."""
    return f"{CLOSED}{number(day)}/"


def closed_stream(day: int, stream_id: int) -> str:
    return f"{closed_on(day)}{number(stream_id)}"


def stream_of_closed(key: str) -> int | None:
    """The stream that a note of a closed one is about."""
    match _parts_below(CLOSED, key):
        case [_, stream_id]:
            return _number_of(stream_id)
    return None


JOBS: Final = f"{ROOT}compaction/"


def job(stream_id: int) -> str:
    return f"{JOBS}{number(stream_id)}/job"


def stream_of_job(key: str) -> int | None:
    match _parts_below(JOBS, key):
        case [stream_id, "job"]:
            return _number_of(stream_id)
    return None


# --- groups

GROUPS: Final = f"{ROOT}groups/"
GROUP_LEASES: Final = f"{ROOT}group-leases/"
GROUP_FENCES: Final = f"{ROOT}group-fences/"
GROUP_CONFIGS: Final = f"{ROOT}group-configs/"
GROUP_OFFSETS: Final = f"{ROOT}group-offsets/"
FOLLOWED_GROUPS: Final = f"{ROOT}followed-groups/"


def domain_of_group(group: str, domains: int) -> int:
    """All keys of a group share a domain. The function is part of the stored format."""
    return crc32(group.encode()) % domains


def group(group_id: str) -> str:
    """The one record of a group."""
    return f"{GROUPS}{name(group_id)}"


def group_of(key: str) -> str | None:
    """The group of a record."""
    return _name_below(GROUPS, key)


def group_lease(group_id: str) -> str:
    return f"{GROUP_LEASES}{name(group_id)}"


def group_of_lease(key: str) -> str | None:
    return _name_below(GROUP_LEASES, key)


def group_fence(group_id: str) -> str:
    return f"{GROUP_FENCES}{name(group_id)}"


def group_configs(group_id: str) -> str:
    """In the cluster's domain: every broker follows all of them."""
    return f"{GROUP_CONFIGS}{name(group_id)}"


def group_of_configs(key: str) -> str | None:
    return _name_below(GROUP_CONFIGS, key)


def followed_group(group_id: str) -> str:
    """The key of the copy of a group that comes from another cluster; in the group's domain."""
    return f"{FOLLOWED_GROUPS}{name(group_id)}"


def group_of_followed(key: str) -> str | None:
    return _name_below(FOLLOWED_GROUPS, key)


def group_offsets(group_id: str) -> str:
    """Apart from the records, so that listing groups does not walk through their offsets."""
    return f"{GROUP_OFFSETS}{name(group_id)}/"


def group_offset(group_id: str, topic_name: str, partition: int) -> str:
    return f"{group_offsets(group_id)}{name(topic_name)}/{number(partition)}"


def place_of_offset(key: str) -> tuple[str, str, int] | None:
    """Group, topic and partition of a committed offset."""
    match _parts_below(GROUP_OFFSETS, key):
        case [group_id, topic_name, partition] if (index := _number_of(partition)) is not None:
            return parse_name(group_id), parse_name(topic_name), index
    return None


# --- security: all in the cluster's domain, and in the memory of every broker

USERS: Final = f"{ROOT}users/"
ACLS: Final = f"{ROOT}acls/"
CLIENT_QUOTAS: Final = f"{ROOT}client-quotas/"


def user(user_name: str, mechanism: str) -> str:
    """A user's credential for one mechanism."""
    return f"{USERS}{name(user_name)}/{name(mechanism)}"


def credential_of(key: str) -> tuple[str, str] | None:
    """User and mechanism of a credential."""
    match _parts_below(USERS, key):
        case [user_name, mechanism]:
            return parse_name(user_name), parse_name(mechanism)
    return None


def acl(
    resource_type: str,
    pattern_type: str,
    resource_name: str,
    principal: str,
    host: str,
    operation: str,
    permission: str,
) -> str:
    """The key is the whole ACL."""
    parts = (resource_type, pattern_type, resource_name, principal, host, operation, permission)
    return ACLS + "/".join(map(name, parts))


def parts_of_acl(key: str) -> list[str] | None:
    """As `acl` takes them."""
    parts = _parts_below(ACLS, key)
    return [parse_name(part) for part in parts] if len(parts) == 7 else None


def client_quota(entity: Mapping[str, str]) -> str:
    """By kind of entity, a name; an empty one is the default."""
    return CLIENT_QUOTAS + "/".join(f"{kind}={name(named)}" for kind, named in sorted(entity.items()))


def parts_of_client_quota(key: str) -> dict[str, str] | None:
    parts = [part.partition("=") for part in _parts_below(CLIENT_QUOTAS, key)]
    if not parts or not all(kind and equals for kind, equals, _ in parts):
        return None
    return {kind: parse_name(named) for kind, _, named in parts}


# --- WAL objects

WAL: Final = f"{ROOT}wal/"
STAGING: Final = f"{WAL}staging/"
OBJECTS: Final = f"{WAL}objects/"
REFERENCES: Final = f"{WAL}refs/"
CARRIED: Final = f"{WAL}carried/"


def staging(wal_id: UUID) -> str:
    return f"{STAGING}{wal_id.hex}"


def wal_object(wal_id: UUID) -> str:
    return f"{OBJECTS}{wal_id.hex}"


def references(wal_id: UUID) -> str:
    return f"{REFERENCES}{wal_id.hex}/"


def reference(wal_id: UUID, stream_id: int) -> str:
    return f"{references(wal_id)}{number(stream_id)}"


def entry_reference(object_id: UUID, stream_id: int, end: int) -> str:
    """The reference of one index entry: several of a stream may name parts of one outside object."""
    return f"{reference(object_id, stream_id)}/{number(end)}"


def wal_id_of(key: str) -> UUID:
    """The WAL id in a staging, object or reference key."""
    return UUID(hex=key.split("/")[5])


def carried_hint(stream_id: int) -> str:
    """A hint that the stream may have carried entries."""
    return f"{CARRIED}{number(stream_id)}"


def stream_of_carried_hint(key: str) -> int | None:
    match _parts_below(CARRIED, key):
        case [stream_id]:
            return _number_of(stream_id)
    return None
