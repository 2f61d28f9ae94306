"""The log's settings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dray.base.config.kinds import DAY, GIB, KIB, MIB, MINUTE, Duration, Either, Size
from dray.base.config.machine import usable_memory
from dray.base.config.setting import setting
from dray.log.append.carry import CarryLimits
from dray.log.life.deletions import Brake
from dray.metadata.contract import InlineLimits

_TAIL_SHARE = 8


@dataclass(frozen=True, kw_only=True)
class LogSettings:
    """How records become objects, and what is kept in memory."""

    flush_linger: float | None = setting(
        None,
        Either("auto", Duration(0.0, 10.0)),
        "How long records wait for company before an object is written. `auto`: not at all on "
        "local files and memory, 100ms on cloud stores, where each put costs money.",
    )
    object_bytes: int = setting(
        8 * MIB, Size(64 * KIB, GIB), "An object is closed at this size at the latest."
    )
    carry_bytes: int | None = setting(
        None,
        Either("auto", Size(0, 256 * KIB)),
        "Small appends ride in their commit instead of an object, so that they take milliseconds "
        "and no put: this is the most that one such write holds, per metadata domain (with sqlite and memory "
        "a write may be of all domains). `auto`: 64KiB with sqlite and memory, 32KiB with oxia, 8KiB with "
        "etcd. `0`: all appends are objects, and what is carried is packed into them.",
    )
    tail_cache_bytes: int | None = setting(
        None,
        Either("auto", Size(0, 1024 * GIB)),
        "The newest records, kept for consumers that follow the tail or are not far behind: they "
        "are read from memory, and not from the object store. `auto`: an eighth of the memory that the "
        "process may use (the machine's, or its container's limit), from 32MiB to 8GiB; with `drayd up` at "
        "most 512MiB, for all its brokers together.",
    )
    compacted_cache_bytes: int = setting(
        128 * MIB,
        Size(0, 1024 * GIB),
        "Row groups of compacted files, rebuilt for consumers that catch up: about 8 MiB for "
        "each partition that somebody reads from.",
    )
    orphan_ttl: float = setting(
        DAY,
        Duration(1.0, 365 * DAY),
        "An object whose writer never finished, or that the metadata does not know, is garbage "
        "only after so long.",
    )
    retention_interval: float = setting(
        5 * MINUTE,
        Duration(1.0, 30 * DAY),
        "How often a broker looks for records that their topic's retention lets go of.",
    )

    collect_grace: float = setting(
        10 * MINUTE,
        Duration(0.0, 30 * DAY),
        "How long an object that nothing refers to stays for readers that still know it.",
    )

    # The rest follows from other settings, or is for tests
    zone: str = "local"
    waits: bool = False  # for company, where `flush_linger` is auto: each put costs money
    collect_share: float = 0.5  # of what a round sees: it deletes no more of what is unknown
    brake: Brake = field(default_factory=Brake)  # by `collect_share`
    carry: CarryLimits | None = None  # how small appends ride in their commit: see `on`
    carry_backlog: int | None = None  # of a domain, unless the engine's holds
    # Flushing. With no linger, an object closes at once when nothing of its domain is in flight.
    max_commit_bytes: int = 1 * MIB
    uploads_in_flight: int = 4  # of a domain
    ahead_bytes: int = 16 * KIB  # objects from this size on may have their successor's mark staged
    # Caches
    segment_cache_bytes: int = 64 * MIB  # pieces of objects, for consumers behind the tail
    index_cache_entries: int = 512  # of a stream, for consumers behind the tail
    cache_idle_seconds: float = 5 * MINUTE  # then the memory goes back to the system
    # Reading compacted files: footers as they take memory, row groups read ahead
    parquet_footer_cache_bytes: int = 32 * MIB
    parquet_groups_ahead: int = 2  # of a partition
    # No broker serves deleted records for longer than this. One that cannot ask for the bounds refuses reads.
    bounds_seconds: float = 5.0
    # A read of an object has to be bad for so long before it is called damaged or lost
    doubt_seconds: float = 30.0
    # Waiting and trying again
    retry_seconds: float = 0.05
    retry_limit: int = 6
    commit_seconds: float = 30.0  # then a commit is not tried again: as long as most producers wait
    settle_seconds: float = 1.0
    # Producers
    producer_expiry_ms: int = 86_400_000
    snapshot_every_entries: int = 256
    producer_id_block: int = 1000
    stream_id_block: int = 64
    # Collecting
    collect_seconds: float = MINUTE
    audit_every_rounds: int = 24 * 60  # the whole bucket is compared with the metadata
    pack_look_seconds: float = 10.0  # packing is looked after more often than garbage
    # Retention no longer waits for a compaction that has stood still for so long.
    job_seconds: float = 3600.0

    def on(self, engine: InlineLimits) -> LogSettings:
        """With what small appends may cost the metadata store. Where `carry` is None, all are objects."""
        if self.carry_bytes == 0:
            return replace(self, carry=None)
        carry = self.carry or CarryLimits.of(engine).within(self.carry_bytes, self.carry_backlog)
        return replace(self, carry=carry)

    @property
    def linger_seconds(self) -> float:
        if self.flush_linger is None:
            return 0.1 if self.waits else 0.0
        return self.flush_linger

    @property
    def tail_bytes(self) -> int:
        if self.tail_cache_bytes is None:
            return min(max(usable_memory() // _TAIL_SHARE, 32 * MIB), 8 * GIB)
        return self.tail_cache_bytes
