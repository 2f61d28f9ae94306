"""Which appends are carried in their commit, and when carried entries are packed: pure policy.

A small append needs no object: its batches ride in the index entry that the commit puts anyway. That costs
the metadata store bytes, so it is bounded: by the size of a chunk and of a write, by the rate of a domain, by
what is carried and not yet packed or compacted (the backlog), of a domain and of a stream. Bulk that comes in
small batches is over the rate, and goes in objects; a trickle beside it is carried. Two brokers that write to
one stream would file each other's heads again and again: after two lost races in a second its appends are
objects. What went over a bound comes back at half of it, so that the lanes are not changed all the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from dray.log.returning_producers import FEWEST_RETURNS

KIB: Final = 1 << 10
MIB: Final = 1 << 20

LULL_SECONDS: Final = 1.0
"""After so long without any small batch a domain begins anew."""

_HEAVY_SHARE: Final = 16  # a stream with this part of its domain's rate is no trickle
_RACE_SECONDS: Final = 1.0
_RACES: Final = 2


class LaneSwitch(Enum):
    """Why an append is not carried."""

    LARGE = "large"  # the chunk of its stream
    FULL = "full"  # the write that it would ride in
    RATE = "rate"
    BACKLOG = "backlog"  # of the domain
    STREAM_BACKLOG = "stream_backlog"
    RACES = "races"


@dataclass(frozen=True, slots=True, kw_only=True)
class CarryLimits:
    chunk_bytes: int = 16 * KIB  # of one stream in one write
    write_bytes: int
    rate: int  # bytes a second, of a domain
    # Rates are counted over so long: what bulk brings in it is carried before bulk is recognised.
    rate_seconds: float = 1.0
    backlog: int  # bytes of a domain
    stream_backlog: int
    # Beyond so many writes a second, one in this many seconds: more ride in each.
    free_writes: int = 50
    pace_seconds: float = 0.0
    # One write under way for all domains, not one for each. Where the store brings writes in one after the
    # other anyway, what waits for one is then one more, and not one of each domain.
    across_domains: bool = False
    # Such a write waits for producers that have come back at once so often in a row.
    wait_after: int = FEWEST_RETURNS
    # Packing: the backlog of a domain, entries of a stream, and the age of the oldest.
    pack_bytes: int = 4 * MIB
    pack_entries: int = 512
    pack_seconds: float = 600.0
    # The hint at a stream is put again after so long, and followed by others when it has stood for so long.
    hint_seconds: float = 1800.0
    standing_seconds: float = 3600.0

    def within(self, write_bytes: int | None, backlog: int | None) -> CarryLimits:
        """The same with what an operator asked for."""
        wanted = self.write_bytes if write_bytes is None else write_bytes
        most = self.backlog if backlog is None else backlog
        return replace(
            self,
            chunk_bytes=min(self.chunk_bytes, wanted),
            write_bytes=wanted,
            backlog=most,
            stream_backlog=min(self.stream_backlog, most),
            pack_bytes=min(self.pack_bytes, most // 2),
        )


# By what the store of an engine bears: estimates, to be tuned. etcd keeps every revision until it is
# compacted, and its quota is 2 GB by default.
EMBEDDED: Final = CarryLimits(
    write_bytes=64 * KIB,
    rate=8 * MIB,
    rate_seconds=0.25,
    backlog=32 * MIB,
    stream_backlog=2 * MIB,
    across_domains=True,
)
OXIA: Final = CarryLimits(
    write_bytes=32 * KIB, rate=256 * KIB, backlog=16 * MIB, stream_backlog=MIB, pace_seconds=0.01
)
ETCD: Final = CarryLimits(
    chunk_bytes=8 * KIB,
    write_bytes=8 * KIB,
    rate=32 * KIB,
    backlog=4 * MIB,
    stream_backlog=256 * KIB,
    pace_seconds=0.01,
    pack_bytes=2 * MIB,
)
BY_ENGINE: Final = {"memory": EMBEDDED, "sqlite": EMBEDDED, "oxia": OXIA, "etcd": ETCD}


@dataclass(slots=True)
class CarriedStream:
    """What is carried of one stream, as far as this broker knows."""

    size: int
    entries: int
    since: float  # when the oldest was carried, or was first seen


class CarriedBacklog:
    """What is carried in a domain. Counted up by appends, and set right by each look at a stream."""

    def __init__(self, limits: CarryLimits) -> None:
        self.limits = limits
        self._streams: dict[int, CarriedStream] = {}
        self._meanwhile: dict[int, CarriedStream] = {}  # what has come to streams that are being looked at
        self.size = 0

    def __iter__(self) -> Iterator[int]:
        return iter(self._streams)

    def of(self, stream: int) -> int:
        found = self._streams.get(stream)
        return 0 if found is None else found.size

    def oldest(self) -> float | None:
        return min([found.since for found in self._streams.values()], default=None)

    def add(self, stream: int, size: int, now: float) -> None:
        found = self._streams.get(stream)
        if found is None:
            found = self._streams[stream] = CarriedStream(0, 0, now)
        found.size += size
        found.entries += 1
        self.size += size
        if (more := self._meanwhile.get(stream)) is not None:
            more.size += size
            more.entries += 1

    def looking_at(self, stream: int, now: float) -> None:
        """The stream is about to be read. What is appended from now on may not be in what is seen."""
        self._meanwhile[stream] = CarriedStream(0, 0, now)

    def recount(self, stream: int, size: int, entries: int, now: float) -> None:
        """A look at the stream has shown what it carries."""
        found = self._streams.pop(stream, None)
        if found is not None:
            self.size -= found.size
        if (more := self._meanwhile.pop(stream, None)) is not None:
            size, entries = size + more.size, entries + more.entries
        if entries:
            # What is left was carried after what has gone, so it is young.
            since = found.since if found is not None and found.entries <= entries else now
            self._streams[stream] = CarriedStream(size, entries, since)
            self.size += size

    def due(self, now: float) -> list[int]:
        """The streams to pack now, the oldest first."""
        found = [
            (each.since, stream)
            for stream, each in self._streams.items()
            if self.is_much(stream) or self.is_old(stream, now)
        ]
        return [stream for _, stream in sorted(found)]

    def is_much(self, stream: int) -> bool:
        """Is so much carried that a pack should not wait for the next look?"""
        limits, found = self.limits, self._streams.get(stream)
        return self.size >= limits.pack_bytes or (
            found is not None
            and (found.entries >= limits.pack_entries or found.size >= limits.stream_backlog // 2)
        )

    def is_old(self, stream: int, now: float) -> bool:
        """Has something of the stream waited for long? Then its head is packed too."""
        found = self._streams.get(stream)
        return found is not None and now - found.since >= self.limits.pack_seconds


class SmallBatchRate:
    """What comes to a domain in small batches, whichever lane they take.

    Over the domain's rate, heavy streams are not carried, and light ones are: a trickle beside bulk keeps its
    milliseconds. Where the light ones alone are over the rate, none is."""

    def __init__(self, rate: int, seconds: float) -> None:
        self._seconds = seconds
        self._most = rate * seconds
        self._share = self._most / _HEAVY_SHARE
        self._until = 0.0  # when the present count ends
        self._sizes: dict[int, int] = {}  # of the present count, by stream
        self._total = 0
        self._light = 0
        self._is_over = False
        self._is_crowded = False  # by light streams
        self._heavy: set[int] = set()  # in the count before
        self._heavy_now: set[int] = set()

    def takes(self, now: float, stream: int, size: int) -> bool:
        """Count a batch. Is its stream to be carried, as far as the rate goes?"""
        if now >= self._until:
            self._begin(now)
        own = self._sizes[stream] = self._sizes.get(stream, 0) + size
        was_heavy = stream in self._heavy
        is_heavy = own > (self._share / 2 if was_heavy else self._share)
        if is_heavy:
            self._heavy_now.add(stream)
        self._total += size
        if self._total > self._most:
            self._is_over = True
        if is_heavy or was_heavy:
            return not self._is_over
        self._light += size
        if self._light > self._most:
            self._is_crowded = True
        return not self._is_crowded

    def _begin(self, now: float) -> None:
        """Over a bound until a count was below half of it, or nothing came for a while."""
        lull = now >= self._until + LULL_SECONDS
        self._is_over = self._is_over and not lull and self._total * 2 > self._most
        self._is_crowded = self._is_crowded and not lull and self._light * 2 > self._most
        self._heavy, self._heavy_now = set() if lull else self._heavy_now, set()
        self._sizes, self._total, self._light = {}, 0, 0
        self._until = now + self._seconds


class CarryPolicy:
    """Of one domain. The rate is asked for each batch that is small enough, `refusal` for each that may be
    carried by it."""

    def __init__(self, limits: CarryLimits, backlog: CarriedBacklog) -> None:
        self._limits = limits
        self._backlog = backlog
        self.rate = SmallBatchRate(limits.rate, limits.rate_seconds)
        self.is_over_backlog = False
        self._full: set[int] = set()  # streams over their bound
        self._large: set[int] = set()  # streams whose chunk was too large
        self._races: dict[int, tuple[float, int]] = {}  # by stream: when one was lost last, how many in a row

    def refusal(self, now: float, stream: int, chunk: int, write: int, size: int) -> LaneSwitch | None:
        """Why a batch of that size is not carried: None if it is. `chunk` and `write` are what waits already,
        of its stream and in all."""
        limits = self._limits
        if not self._is_below(self._large, stream, chunk + size, limits.chunk_bytes):
            return LaneSwitch.LARGE
        most = limits.backlog // 2 if self.is_over_backlog else limits.backlog
        self.is_over_backlog = self._backlog.size + write + size > most
        if self.is_over_backlog:
            return LaneSwitch.BACKLOG
        if not self._is_below(
            self._full, stream, self._backlog.of(stream) + chunk + size, limits.stream_backlog
        ):
            return LaneSwitch.STREAM_BACKLOG
        if self._is_racing(now, stream):
            return LaneSwitch.RACES
        return LaneSwitch.FULL if write + size > limits.write_bytes else None

    def lost_race(self, now: float, stream: int) -> None:
        """Another broker was first at the stream's high watermark."""
        last, count = self._races.get(stream, (now, 0))
        self._races[stream] = now, (count + 1 if now - last <= _RACE_SECONDS else 1)

    def forget_idle(self, now: float) -> None:
        """Drop what is remembered of streams that have nothing over any bound by now."""
        self._races = {each: seen for each, seen in self._races.items() if now - seen[0] < 2 * _RACE_SECONDS}
        self._full = {each for each in self._full if self._backlog.of(each) * 2 > self._limits.stream_backlog}
        self._large.clear()

    @staticmethod
    def _is_below(over: set[int], stream: int, size: int, most: int) -> bool:
        if size > (most // 2 if stream in over else most):
            over.add(stream)
            return False
        over.discard(stream)
        return True

    def _is_racing(self, now: float, stream: int) -> bool:
        if not self._races:
            return False
        last, count = self._races.get(stream, (0.0, 0))
        if count >= _RACES and now - last < 2 * _RACE_SECONDS:
            return True
        if count >= _RACES:
            del self._races[stream]
        return False
