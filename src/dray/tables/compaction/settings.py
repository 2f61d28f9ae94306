"""The settings of compaction."""

from __future__ import annotations

from dataclasses import dataclass, field

from dray.base.config.kinds import (
    DAY,
    GIB,
    HOUR,
    KIB,
    MIB,
    MINUTE,
    Address,
    Duration,
    Either,
    HostPort,
    Size,
    Switch,
)
from dray.base.config.setting import setting
from dray.log.life.deletions import Brake


@dataclass(frozen=True, kw_only=True)
class CompactionSettings:
    """When records move from WAL objects into Parquet files."""

    enabled: bool = setting(
        True,
        Switch(),
        "Whether `drayd up` runs a compactor. It needs the pipeline's packages and Java 17 or "
        "newer; where those are missing, `up` says so and goes on without.",
    )
    http: Address | None = setting(
        None,
        Either("off", HostPort(free_port=True)),
        "Where a compactor serves `/healthz`, `/readyz` and `/metrics`, such as "
        "`127.0.0.1:9643`. Compactors on one machine need addresses of their own.",
    )
    interval: float = setting(
        MINUTE, Duration(1.0, DAY), "The pause between two cycles with nothing left to do."
    )
    wal_max_age: float = setting(
        5 * MINUTE, Duration(0.0, 365 * DAY), "Records that lie in WAL objects for so long are compacted."
    )
    wal_max_bytes: int = setting(
        64 * MIB,
        Size(64 * KIB, 1024 * GIB),
        "A partition with so much in WAL objects is compacted, whatever its age.",
    )
    target_file_bytes: int = setting(
        256 * MIB, Size(MIB, 16 * GIB), "How much of the log goes into one file at most."
    )
    collect_grace: float = setting(
        10 * MINUTE,
        Duration(0.0, 30 * DAY),
        "How long a file that nothing refers to stays for readers that still know it.",
    )

    # No config names the rest. When WAL entries become a file: there are so many of them.
    wal_max_entries: int = 1000
    # When files become one: there are more of them in a partition, and small ones adjoin.
    parquet_max_files: int = 16
    # A stream's whole index is read again after so long, even without a hint.
    reread_seconds: float = 600.0
    # Inputs of one job at most, whatever the engine allows: they are listed in the job's value.
    max_inputs: int = 2000
    # Of a backlog, so much at a time: what is written is committed before more is begun.
    cycle_bytes: int = 8 * GIB
    # The job of another compactor is left alone until it has stood still for so long.
    takeover_seconds: float = 2 * MINUTE
    # A table that could not be written for so long is left behind: its log goes on without it.
    table_patience_seconds: float = HOUR
    # A stream whose unit could not be written is tried again after so long; after damage that was met for the
    # first time, which may be of the answer and not of the object, after so long.
    failed_pause_seconds: float = 3600.0
    doubt_pause_seconds: float = 60.0
    # A bottom merge holds the distinct keys in memory: of more uncompressed bytes a stream is cleaned by a
    # round, whose object has so many keys at most (24 bytes each, and as much again while it is made).
    bottom_raw_bytes: int = 3 << 29
    round_keys: int = 4 << 20
    streams_at_once: int = 16
    topics_at_once: int = 16  # tables and catalogs are mostly waited for
    # Collecting files and snapshots that nobody needs
    collect_seconds: float = 10 * MINUTE
    metadata_orphan_seconds: float = 3 * DAY  # for commits of tables that take very long
    # From the sections `iceberg` and `log`
    snapshot_keep_ms: int = 3_600_000  # how long snapshots of a table stay, for queries that read them
    # Rows of other writers are taken out of tables by themselves. Else they hold the table.
    revert_foreign_rows: bool = False
    drop_tables: bool = True  # the table of a deleted topic goes with it
    brake: Brake = field(default_factory=Brake)  # of files and tables that the metadata does not know

    @property
    def wal_max_age_ms(self) -> int:
        return round(self.wal_max_age * 1000)
