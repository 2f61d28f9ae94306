"""The settings of compaction. Those in the config have their defaults there, the others here."""

from __future__ import annotations

from dataclasses import dataclass

from dray.log.deletions import Brake

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionSettings:
    interval_seconds: float
    # When WAL entries become a file: the oldest is so old, or there are so many bytes or entries of them.
    wal_max_age_ms: int
    wal_max_bytes: int
    wal_max_entries: int
    # When files become one: there are more of them in a partition, and small ones adjoin.
    parquet_max_files: int
    target_file_bytes: int
    # A stream's whole index is read again after so long, even without a hint.
    reread_seconds: float
    # Inputs of one job at most, whatever the engine allows: they are listed in the job's value.
    max_inputs: int = 2000
    # Of a backlog, so much at a time: what is written is committed before more is begun.
    cycle_bytes: int
    # The job of another compactor is left alone until it has stood still for so long.
    takeover_seconds: float
    # A stream whose unit could not be written is tried again after so long.
    failed_pause_seconds: float = 3600.0
    # A bottom merge holds the distinct keys in memory: of more uncompressed bytes a stream is cleaned by a
    # round, whose object has so many keys at most (24 bytes each, and as much again while it is made).
    bottom_raw_bytes: int = 3 << 29
    round_keys: int = 4 << 20
    streams_at_once: int = 16
    topics_at_once: int = 4
    # Collecting
    collect_seconds: float
    grace_seconds: float  # for readers that still know a file
    metadata_orphan_seconds: float = 3 * 86_400.0  # for commits of tables that take very long
    snapshot_keep_ms: int  # how long snapshots of a table stay, for queries that read them
    drop_tables: bool  # the table of a deleted topic goes with it
    brake: Brake  # of files and tables that the metadata does not know
