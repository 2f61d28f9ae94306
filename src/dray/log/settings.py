"""The log's settings. Those in the config have their defaults there, the others here."""

from __future__ import annotations

from dataclasses import dataclass

from dray.log.carry import CarryLimits
from dray.log.deletions import Brake

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    zone: str
    # Flushing. With no linger, an object closes at once when nothing of its domain is in flight.
    linger_seconds: float
    max_object_bytes: int
    max_commit_bytes: int = 1 * MIB
    uploads_in_flight: int
    ahead_bytes: int = 16 << 10  # objects from this size on may have their successor's mark staged
    # Caches
    tail_cache_bytes: int
    segment_cache_bytes: int
    index_cache_entries: int
    # Reading compacted files: row groups rebuilt, footers as they take memory, row groups read ahead
    parquet_cache_bytes: int
    parquet_footer_cache_bytes: int
    parquet_groups_ahead: int
    # Pieces of segments that other systems wrote
    foreign_cache_bytes: int
    cache_idle_seconds: float
    # No broker serves deleted records for longer than this
    bounds_seconds: float
    # Waiting and trying again
    retry_seconds: float = 0.05
    retry_limit: int = 6
    commit_seconds: float = 30.0  # then a commit is not tried again: as long as most producers wait
    settle_seconds: float = 1.0
    # Producers
    producer_expiry_ms: int
    snapshot_every_entries: int = 256
    producer_id_block: int = 1000
    stream_id_block: int = 64
    # Collecting
    orphan_seconds: float
    grace_seconds: float
    collect_seconds: float
    audit_every_rounds: int
    brake: Brake
    # Small appends ride in their commit. None: all are objects.
    carry: CarryLimits | None
    pack_look_seconds: float
    # Retention no longer waits for a compaction that has stood still for so long.
    job_seconds: float
