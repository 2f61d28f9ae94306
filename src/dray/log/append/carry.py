"""Which appends are carried in their commit, and when carried entries are packed: pure policy.

A small append needs no object: its batches ride in the index entry that the commit puts anyway. That costs
the metadata store bytes, so it is bounded: by the size of a chunk and of a write, by the rate of a domain, by
what is carried and not yet packed or compacted (the backlog), of a domain and of a stream. Bulk that comes in
small batches is over the rate, and goes in objects; a trickle beside it is carried. Two brokers that write to
one stream would file each other's heads again and again: after two lost races in a second its appends are
objects. A stream that went over a bound comes back at half of it, so that lanes do not change all the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from dray.metadata.contract import InlineLimits

FEWEST_RETURNS: Final = 8
"""So often must producers have come back at once before a write waits for them (`ReturningProducers`)."""

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


@dataclass(frozen=True, kw_only=True)
class CarryLimits(InlineLimits):
    stream_entries: int = 4096
    entry_bytes: int = 300
    free_writes: int = 50  # in a second, before they are paced
    # Writes across domains wait for producers that have come back at once so often in a row.
    wait_after: int = FEWEST_RETURNS
    # Packing: entries of a stream, and the age of the oldest.
    pack_entries: int = 512
    pack_seconds: float = 600.0
    # A pack takes a dozen requests for each stream. So of a stream with few entries it waits for longer.
    few_entries: int = 32
    few_seconds: float = 3000.0  # before others follow its hint
    # The hint at a stream is put again after so long, and followed by others when it has stood for so long.
    hint_seconds: float = 1800.0
    standing_seconds: float = 3600.0

    @staticmethod
    def of(engine: InlineLimits) -> CarryLimits:
        return CarryLimits(**vars(engine))

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


@dataclass(slots=True)
class CarriedStream:
    """The carried bytes and entries of one stream, as far as this broker knows."""

    size: int  # with what the entries take beside their batches
    entries: int
    since: float  # when the oldest was carried, or was first seen
    head: int = 0  # of the size, what is not filed yet: no pack takes it while it is young

    @property
    def filed(self) -> int:
        return self.size - self.head


class CarriedBacklog:
    """The carried entries of a domain. Counted up by appends, and set right by each look at a stream."""

    def __init__(self, limits: CarryLimits) -> None:
        self.limits = limits
        self._streams: dict[int, CarriedStream] = {}
        self._meanwhile: dict[int, CarriedStream] = {}  # what has come to streams that are being looked at
        self.size = 0
        self.filed = 0  # of that, what a pack could take
        self.latest = float("-inf")  # when something was carried last

    def __iter__(self) -> Iterator[int]:
        return iter(self._streams)

    def of(self, stream: int) -> int:
        found = self._streams.get(stream)
        return 0 if found is None else found.size

    def entries_of(self, stream: int) -> int:
        found = self._streams.get(stream)
        return 0 if found is None else found.entries

    def oldest(self) -> float | None:
        return min([found.since for found in self._streams.values()], default=None)

    def add(self, stream: int, size: int, now: float) -> None:
        """An entry was carried, with so many bytes of batches."""
        size += self.limits.entry_bytes
        found = self._streams.get(stream)
        if found is None:
            found = self._streams[stream] = CarriedStream(0, 0, now)
        self.filed += found.head
        self.size += size
        self.latest = now
        for each in (found, self._meanwhile.get(stream)):
            if each is not None:
                each.size += size
                each.entries += 1
                each.head = size

    def looking_at(self, stream: int, now: float) -> None:
        """The stream is about to be read. The read may miss batches that are appended from now on."""
        self._meanwhile[stream] = CarriedStream(0, 0, now)

    def recount(self, stream: int, size: int, entries: int, now: float, head: int | None = None) -> None:
        """A look at the stream has shown what it carries: bytes of batches, and entries. `head`: bytes of
        the one that is not filed."""
        size += entries * self.limits.entry_bytes
        unfiled = 0 if head is None else head + self.limits.entry_bytes
        found = self._streams.pop(stream, None)
        if found is not None:
            self.size -= found.size
            self.filed -= found.filed
        if (more := self._meanwhile.pop(stream, None)) is not None and more.entries:
            size, entries, unfiled = size + more.size, entries + more.entries, more.head
        if entries:
            # The rest was carried after what has gone, so it is young.
            since = found.since if found is not None and found.entries <= entries else now
            kept = self._streams[stream] = CarriedStream(size, entries, since, unfiled)
            self.size += size
            self.filed += kept.filed

    def due(self, now: float) -> list[int]:
        """The streams to pack now, the oldest first."""
        found = [
            (each.since, stream)
            for stream, each in self._streams.items()
            if self.is_much(stream) or self.is_old(stream, now)
        ]
        return [stream for _, stream in sorted(found)]

    def is_much(self, stream: int) -> bool:
        """Is so much carried that a pack should not wait for the next look? A head counts for nothing: it is
        filed by the next append, and a pack takes it only once it is old. Streams with few entries are packed
        when the backlog is a third of its bound: else a trickle into many would be packed one by one."""
        limits, found = self.limits, self._streams.get(stream)
        if found is None or not found.filed:
            return False
        enough = limits.pack_bytes
        if found.entries < limits.few_entries:
            enough = max(enough, limits.backlog // 3)
        return (
            self.filed >= enough
            or found.entries >= limits.pack_entries
            or found.filed >= limits.stream_backlog // 2
        )

    def is_old(self, stream: int, now: float) -> bool:
        """Has something of the stream waited for long? Then its head is packed too."""
        limits, found = self.limits, self._streams.get(stream)
        if found is None:
            return False
        enough = limits.pack_seconds
        if found.entries < limits.few_entries:
            enough = max(enough, limits.few_seconds)
        return now - found.since >= enough


class SmallBatchRate:
    """The rate of small batches in a domain, whichever lane they take.

    Over the domain's rate, heavy streams are not carried, and light ones are: a trickle beside bulk keeps its
    milliseconds. If the light ones alone are over the rate, none is carried."""

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
        if self._backlog.entries_of(stream) >= limits.stream_entries:
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


# --- a wait for the batches that are about to come
#
# A producer with several requests in flight sends the next ones as soon as it is answered. The first of
# them finds the lane free, and without a wait it is written alone while the others come in: of five in
# flight, one and then four. So when a write has ended, it is watched whether as many batches come as it
# answered. While they nearly always do, and at once, the next write waits for the last of them.
#
# Watching costs nothing, so trust is gained without any wait: by batches that would have made one worth it.
# They must come within about the time of two writes, and before the next write has ended. Trust goes four
# times as fast as it comes, and a wait in vain takes most of it: below four returns in five, a wait would
# cost producers more than it saves them. A lone producer is never waited for.


LEAST_SECONDS: Final = 0.001
MOST_SECONDS: Final = 0.004
"""The bounds of the time in which batches come back at once."""

MOST_RETURNS: Final = 64
_SPARE_RETURNS: Final = 8
_LOST_BY_STAYING_AWAY: Final = 4


class ReturningProducers:
    """Of one lane. It is told of each batch, and of each write that has ended."""

    def __init__(self, fewest: int = FEWEST_RETURNS) -> None:
        """`fewest`: so often must all have come back before the first wait."""
        self._fewest = fewest
        self.is_complete = True  # all have come that were expected
        self.until = 0.0  # they come back at once until then
        self._missing = 0  # how many have not come yet
        self._trust = 0
        self._needed = fewest
        self._is_waited_for = False

    def ended(self, now: float, taken: float, answered: int, waiting: int) -> None:
        """A write has taken so long and answered so many batches, and so many wait for the next one."""
        if not self.is_complete:
            self.stayed_away()
        self.is_complete = answered + waiting <= 1
        if self.is_complete:
            self._trust = 0
        self._missing = answered
        self.until = now + min(MOST_SECONDS, max(LEAST_SECONDS, 2 * taken))

    def came(self, now: float) -> None:
        """One more batch is there."""
        if self.is_complete:
            return
        if now > self.until:
            self.stayed_away()
            return
        self._missing -= 1
        if not self._missing:
            self.is_complete = True
            self._trust = min(self._trust + 1, self._needed + _SPARE_RETURNS)
            if self._is_waited_for:
                self._is_waited_for = False
                self._needed = max(self._fewest, self._needed - 1)

    def are_waited_for(self, now: float) -> bool:
        """Shall a write that could begin wait until all have come, or `until` then?"""
        self._is_waited_for = not self.is_complete and self._trust >= self._needed and now <= self.until
        return self._is_waited_for

    def stayed_away(self) -> None:
        """They have not come, though they may have been waited for."""
        self.is_complete = True
        if not self._is_waited_for:
            self._trust = max(0, self._trust - _LOST_BY_STAYING_AWAY)
            return
        self._is_waited_for = False
        self._trust -= _SPARE_RETURNS
        if self._trust < self._needed:
            self._trust = 0
            self._needed = min(MOST_RETURNS, 2 * self._needed)
