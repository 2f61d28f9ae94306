"""The log's knobs, with defaults for a local disk."""

from __future__ import annotations

from dataclasses import dataclass, field

from dray.log.deletions import Brake

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class LogSettings:
    zone: str = "local"
    # Flushing. With no linger, an object closes at once when nothing of its domain is in flight.
    linger_seconds: float = 0.0
    max_object_bytes: int = 8 * MIB
    max_commit_bytes: int = 1 * MIB
    uploads_in_flight: int = 4
    # Caches
    tail_cache_bytes: int = 128 * MIB
    segment_cache_bytes: int = 64 * MIB
    index_cache_entries: int = 512
    # Reading compacted files: row groups rebuilt, footers as they take memory, row groups read ahead
    parquet_cache_bytes: int = 128 * MIB
    parquet_footer_cache_bytes: int = 32 * MIB
    parquet_groups_ahead: int = 2
    cache_idle_seconds: float = 300.0
    # What was deleted is served for no longer than this, by whichever broker
    bounds_seconds: float = 5.0
    # Waiting and trying again
    retry_seconds: float = 0.05
    retry_limit: int = 6
    commit_seconds: float = 30.0  # then a commit is not tried again: as long as most producers wait
    settle_seconds: float = 1.0
    # Producers
    producer_expiry_ms: int = 24 * 3_600_000
    snapshot_every_entries: int = 256
    producer_id_block: int = 1000
    stream_id_block: int = 64
    # Collecting
    orphan_seconds: float = 86_400.0
    grace_seconds: float = 600.0
    collect_seconds: float = 60.0
    audit_every_rounds: int = 60
    brake: Brake = field(default_factory=Brake)
    # A compaction that stands still for so long is nobody's, and retention waits for it no more.
    job_seconds: float = 3600.0
