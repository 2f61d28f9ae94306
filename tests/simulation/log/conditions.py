"""What one run of the log's simulation is like: everything that a seed decides before it starts.

The ranges are wide on purpose. Each rule of the commit protocol matters only under some mixture: the
recheck when a broker stands still for longer than the orphan time, the version of the staging mark when
writes arrive twice and late, the order of commits when several objects are in flight.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from dray.daemons.assembly.settings import log_settings
from dray.daemons.config import Settings
from dray.log import LogSettings
from dray.log.append.carry import CarryLimits
from dray_simulation.kernel.weather import Weather


@dataclass(frozen=True, slots=True)
class LogConditions:
    brokers: int
    streams: int
    settings: LogSettings
    weather: Weather
    pace: float  # what a producer thinks at most, between sending and sending
    window: int  # batches that an idempotent producer has in flight, at most
    patience: float  # what a client waits at most
    copies: float  # chance that a client sends to two brokers at once
    epochs: float  # chance that a producer starts anew, with what it sent still under way
    crash_every: float
    pause_every: float
    longest_pause: float
    retain_every: float
    closes: bool  # a topic is deleted on the way
    switch_every: float  # how often a broker begins to carry small appends, or ends

    @classmethod
    def choose(cls, seed: int) -> LogConditions:
        random = Random(seed)
        orphan_seconds = random.choice((0.15, 0.4, 1.5))
        return (
            cls(
                brokers=random.choice((1, 2, 2, 3)),
                streams=random.choice((1, 2, 3, 4)),
                settings=replace(
                    log_settings(Settings()),
                    flush_linger=random.choice((0.0, 0.0, 0.005)),
                    object_bytes=random.choice((150, 400, 1 << 20)),
                    uploads_in_flight=random.choice((1, 4, 4)),
                    retry_seconds=0.01,
                    retry_limit=random.choice((1, 3)),
                    settle_seconds=random.choice((0.02, 0.3)),
                    snapshot_every_entries=random.choice((3, 10, 1000)),
                    orphan_ttl=orphan_seconds,
                    collect_grace=random.choice((0.0, 0.2)),
                    collect_seconds=random.choice((0.05, 0.2)),
                    audit_every_rounds=random.choice((1, 3)),
                    tail_cache_bytes=random.choice((0, 2_000, 1_000_000)),
                    segment_cache_bytes=random.choice((0, 1_000_000)),
                    index_cache_entries=random.choice((2, 512)),
                ),
                weather=Weather(
                    Random(random.getrandbits(64)),
                    refused=random.choice((0.0, 0.03)),
                    lost=random.choice((0.0, 0.03)),
                    unanswered=random.choice((0.02, 0.08)),
                    late=random.choice((0.02, 0.10)),
                    twice=random.choice((0.02, 0.10, 0.40)),
                    stale=random.choice((0.0, 0.03)),
                    stalled=random.choice((0.0, 0.01)),
                    slowest_upload=random.choice((0.02, 0.02, 0.5)),
                    latest=random.choice((0.5, 3.0, 6.0)),
                    stalest=random.choice((0.2, 1.5)),
                ),
                pace=random.choice((0.1, 0.4, 2.0)),
                window=random.choice((1, 3, 5)),
                patience=random.choice((0.3, 1.0, 3.0)),
                copies=random.choice((0.0, 0.3)),
                epochs=random.choice((0.0, 0.05)),
                crash_every=random.choice((1.0, 4.0)),
                pause_every=random.choice((0.7, 3.0)),
                longest_pause=random.choice((0.5, 2.0, 5.0)),
                retain_every=random.choice((0.2, 1.0, 4.0)),
                closes=random.random() < 0.5,
                switch_every=random.choice((0.5, 5.0)),
            )
            .with_lanes(Random(seed ^ 0xCA2))
            .with_marks(Random(seed ^ 0xA4EAD))
        )

    def with_marks(self, random: Random) -> LogConditions:
        """In half of the runs, marks are staged ahead of objects of any size."""
        return replace(
            self, settings=replace(self.settings, ahead_bytes=random.choice((0, self.settings.ahead_bytes)))
        )

    def with_lanes(self, random: Random) -> LogConditions:
        """Small bounds, so that appends change lanes all the time, and packs are many."""
        if random.random() < 0.15:
            return replace(self, settings=replace(self.settings, carry_bytes=0))
        carry = CarryLimits(
            chunk_bytes=random.choice((120, 400, 16_384)),
            write_bytes=random.choice((300, 1_000, 65_536)),
            rate=random.choice((2_000, 1 << 20)),
            rate_seconds=0.25,
            backlog=random.choice((2_000, 1 << 20)),
            stream_backlog=random.choice((1_000, 1 << 20)),
            free_writes=random.choice((1, 50)),
            pace_seconds=random.choice((0.0, 0.01)),
            pack_bytes=random.choice((200, 2_000)),
            pack_entries=random.choice((1, 3, 500)),
            pack_seconds=random.choice((0.2, 1.0)),
        )
        look = random.choice((0.02, 0.1, 0.4))
        across = random.random() < 0.5
        few = 2 if carry.pack_entries == 500 else 0
        carry = replace(carry, few_entries=few, few_seconds=3 * carry.pack_seconds)
        # Without a draw of its own, so that the schedules of other runs stay as they are.
        carry = replace(carry, across_domains=across, wait_after=0 if carry.pack_entries == 1 else 8)
        # No rule rests on these two: a hint may be followed long before it is put again.
        carry = replace(
            carry,
            hint_seconds=random.choice((0.3, 1800.0)),
            standing_seconds=random.choice((0.0, 1.0, 3600.0, 3600.0)),
        )
        return replace(self, settings=replace(self.settings, carry=carry, pack_look_seconds=look))
