"""The log's memory of idempotent producers: a pure fold over the batches it holds.

A producer numbers its batches per stream. The next number is appended, one of the last five is a
duplicate whose first answer is given again, anything else is refused. The state is never stored batch
by batch: it is folded from the index entries, above a snapshot that bounds the fold.
"""

from __future__ import annotations

from collections.abc import Generator, ItemsView, Iterable
from dataclasses import dataclass
from heapq import merge
from struct import Struct, error
from typing import Final, NamedTuple, TypeVar

from dray.kafka.records import NO_PRODUCER
from dray.log.entries import BatchReference, IndexEntry
from dray.log.types import OutOfOrderSequence, ProducerFenced
from dray.metadata.values import ValueCorrupt, unseal

REMEMBERED_BATCHES: Final = 5
FORMAT: Final = 1
RETRIED_MS: Final = 15 * 60_000
"""For how long a client may send a batch again. By default, clients give up after two minutes."""

UNKNOWN: Final = -1
"""The first sequence and the offset of a batch of which only the last sequence is known."""

SEQUENCES: Final = 1 << 31
TURN_PRODUCERS: Final = 4096
"""So many of a snapshot are read or written in a turn: about ten milliseconds."""

T = TypeVar("T")
_HEADER = Struct(">BqI")
_PRODUCER = Struct(">qhqB")
_REMEMBERED = Struct(">iiqq")


class RememberedBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int
    append_time_ms: int

    @property
    def last_offset(self) -> int:
        """Below 0 where it is not known."""
        if self.base_offset < 0:
            return self.base_offset
        return self.base_offset + (self.last_sequence - self.first_sequence) % SEQUENCES


class ProducerEntry(NamedTuple):
    epoch: int
    last_ms: int
    batches: tuple[RememberedBatch, ...]  # oldest first, at most five, never empty
    is_ours: bool = False  # did this process append the last of them? Never stored


def next_sequence(sequence: int, step: int = 1) -> int:
    """Sequences wrap from 2^31-1 to 0."""
    return (sequence + step) % SEQUENCES


class ProducerStates:
    """The producers of one stream up to one offset.

    `fork` gives a view that can be judged against and recorded into while the original stands; the
    appender keeps the fork only if its commit succeeded.
    """

    __slots__ = ("_base", "_own", "expiry_ms")

    def __init__(self, expiry_ms: int, base: ProducerStates | None = None) -> None:
        self.expiry_ms = expiry_ms
        self._base = base
        self._own: dict[int, ProducerEntry] = {}

    def fork(self) -> ProducerStates:
        return ProducerStates(self.expiry_ms, self)

    def join(self) -> ProducerStates:
        """Put what this fork recorded into the states it was forked from, and return those."""
        if self._base is None:
            return self
        self._base._own.update(self._own)
        return self._base

    def rebase(self, base: ProducerStates) -> None:
        """The states that this was forked from have been joined into `base`. Without this, forks of forks
        would make a chain without end."""
        if self._base is not None:
            self._base = base

    def copy(self) -> ProducerStates:
        """As they are now: what is recorded later is not in it."""
        states = ProducerStates(self.expiry_ms)
        states._own = dict(self.items())
        return states

    def drop_expired(self, producer_ids: Iterable[int], now_ms: int) -> None:
        """Of these, which had expired: one may have written again since."""
        for producer_id in producer_ids:
            producer = self._own.get(producer_id)
            if producer is not None and now_ms - producer.last_ms > self.expiry_ms:
                del self._own[producer_id]

    def clear(self) -> None:
        """Forget all of them: from now on this is a fork of nothing."""
        self._base = None
        self._own = {}

    @property
    def count(self) -> int:
        return len(self._own) if self._base is None else len(self.items())

    def get(self, producer_id: int) -> ProducerEntry | None:
        producer = self._own.get(producer_id)
        if producer is None and self._base is not None:
            return self._base.get(producer_id)
        return producer

    def put(self, producer_id: int, producer: ProducerEntry) -> None:
        """Take over what another log knew of a producer."""
        self._own[producer_id] = producer

    def take_over(self, producer_id: int, epoch: int, last_sequence: int, at_ms: int) -> bool:
        """Learn of a producer from another log. Its batches are in neither log any more; only its last number
        is known. Its next batch is in order. The last one, sent again, is known, but not where it was: its
        answer has no offset. False where just that is known already."""
        producer = self.get(producer_id)
        if producer is not None and (producer.epoch, producer.batches[-1].last_sequence) == (
            epoch,
            last_sequence,
        ):
            return False
        last = RememberedBatch(UNKNOWN, last_sequence, UNKNOWN, -1)
        self.put(producer_id, ProducerEntry(epoch, at_ms, (last,)))
        return True

    def items(self) -> ItemsView[int, ProducerEntry]:
        merged = {} if self._base is None else dict(self._base.items())
        merged.update(self._own)
        return merged.items()

    def knows(self, producer_id: int, now_ms: int) -> bool:
        producer = self.get(producer_id)
        return producer is not None and now_ms - producer.last_ms <= self.expiry_ms

    def judge(self, batch: BatchReference, now_ms: int) -> RememberedBatch | None:
        """None for the next batch, the first answer for a duplicate. Raises for any other batch."""
        producer = self.get(batch.producer_id)
        if producer is None or now_ms - producer.last_ms > self.expiry_ms:
            return None
        if batch.producer_epoch < producer.epoch:
            raise ProducerFenced(
                f"producer {batch.producer_id} has epoch {batch.producer_epoch}, "
                f"but epoch {producer.epoch} was seen"
            )
        if batch.producer_epoch > producer.epoch:
            if batch.base_sequence != 0:
                raise OutOfOrderSequence(
                    f"producer {batch.producer_id} starts epoch {batch.producer_epoch} "
                    f"at sequence {batch.base_sequence}, not 0"
                )
            return None
        last_sequence = next_sequence(batch.base_sequence, batch.record_count - 1)
        for remembered in producer.batches:
            if remembered.last_sequence == last_sequence and remembered.first_sequence in (
                batch.base_sequence,
                UNKNOWN,
            ):
                return remembered
        expected = next_sequence(producer.batches[-1].last_sequence)
        if batch.base_sequence == expected:
            return None
        # An older sequence is refused like a gap, as Apache Kafka does: the batch may not have been appended,
        # and clients take "duplicate" for success.
        raise OutOfOrderSequence(
            f"producer {batch.producer_id} sent sequence {batch.base_sequence}, but {expected} is next"
        )

    def has_reached(self, producer_id: int, epoch: int, sequence: int) -> bool:
        """Is what the producer sent up to this sequence, in this epoch, in the log?"""
        producer = self.get(producer_id)
        if producer is None or producer.epoch != epoch:
            return False
        return (producer.batches[-1].last_sequence - sequence) % SEQUENCES < SEQUENCES // 2

    def expected(self, batch: BatchReference) -> int | None:
        """The sequence that is next in the batch's epoch; None for a producer that is not known."""
        producer = self.get(batch.producer_id)
        if producer is None:
            return None
        return (
            next_sequence(producer.batches[-1].last_sequence) if batch.producer_epoch == producer.epoch else 0
        )

    def appended_last(self, producer_id: int) -> bool:
        """Did this process append the producer's last batch?"""
        producer = self.get(producer_id)
        return producer is not None and producer.is_ours

    def still_ours(self, earlier: ProducerStates, producer_ids: Iterable[int]) -> None:
        """These states were read from the store, which does not say who appended. `earlier` knows."""
        for producer_id in producer_ids:
            before, now = earlier.get(producer_id), self.get(producer_id)
            if before is None or now is None or not before.is_ours:
                continue
            if (before.epoch, before.batches[-1]) == (now.epoch, now.batches[-1]):
                self.put(producer_id, now._replace(is_ours=True))

    def record(self, batch: BatchReference, base_offset: int, at_ms: int, is_ours: bool = False) -> None:
        """Take in a batch that was appended."""
        last_sequence = next_sequence(batch.base_sequence, batch.record_count - 1)
        remembered = RememberedBatch(batch.base_sequence, last_sequence, base_offset, batch.append_time_ms)
        self.remember(batch.producer_id, batch.producer_epoch, remembered, at_ms, is_ours)

    def remember(
        self, producer_id: int, epoch: int, remembered: RememberedBatch, at_ms: int, is_ours: bool = False
    ) -> None:
        producer = self.get(producer_id)
        earlier: tuple[RememberedBatch, ...] = ()
        if (
            producer is not None
            and producer.epoch == epoch
            and remembered.first_sequence == next_sequence(producer.batches[-1].last_sequence)
        ):
            earlier = producer.batches[1 - REMEMBERED_BATCHES :]
        self._own[producer_id] = ProducerEntry(epoch, at_ms, (*earlier, remembered), is_ours)

    def fold(self, entry: IndexEntry) -> None:
        for base_offset, batch in entry.batches():
            if batch.producer_id != NO_PRODUCER:
                self.record(batch, base_offset, entry.created_ms)

    def without_expired(self, now_ms: int) -> ProducerStates:
        kept = ProducerStates(self.expiry_ms)
        kept._own = {
            producer_id: producer
            for producer_id, producer in self.items()
            if now_ms - producer.last_ms <= self.expiry_ms
        }
        return kept

    def expired(self, now_ms: int) -> list[int]:
        return [
            producer_id
            for producer_id, producer in self.items()
            if now_ms - producer.last_ms > self.expiry_ms
        ]

    @property
    def least_bytes(self) -> int:
        """The bytes that a snapshot of these takes at least, found without making one."""
        return _HEADER.size + self.count * (_PRODUCER.size + _REMEMBERED.size)

    def newest_ms(self) -> int:
        """When the last of the producers wrote."""
        return max([producer.last_ms for _, producer in self.items()], default=0)

    def within(self, size: int, now_ms: int) -> tuple[ProducerStates, int]:
        """As many of these producers as fit into so many bytes of a snapshot, and how many do not.

        The producers that were silent for longest lose detail first, and at first only their earlier batches:
        a copy of such a batch is then refused as out of order, so nothing is appended twice. If that is not
        enough, these producers are forgotten, as if they had expired. Producers that wrote a short while ago
        may have batches under way that come twice. So they come last."""
        return _at_once(self.bounding(size, now_ms))

    def bounding(self, size: int, now_ms: int) -> Generator[None, None, tuple[ProducerStates, int]]:
        """`within`, in turns: to put many in order takes long."""
        kept = dict(self.items())
        excess = _HEADER.size - size
        for number, producer in enumerate(kept.values(), 1):
            excess += _size_of(producer)
            if not number % TURN_PRODUCERS:
                yield
        if excess <= 0:
            return self, 0
        count, order, young = len(kept), [], 0
        for number, (last_ms, producer_id) in enumerate((yield from _by_silence(kept)), 1):
            order.append(producer_id)
            young += last_ms <= now_ms - RETRIED_MS
            if not number % TURN_PRODUCERS:
                yield
        for part in (order[:young], order[young:]):
            for number, producer_id in enumerate(part, 1):
                if excess <= 0:
                    break
                producer = kept[producer_id]
                excess -= _REMEMBERED.size * (len(producer.batches) - 1)
                kept[producer_id] = producer._replace(batches=producer.batches[-1:])
                if not number % TURN_PRODUCERS:
                    yield
            for number, producer_id in enumerate(part, 1):
                if excess <= 0:
                    break
                excess -= _size_of(kept.pop(producer_id))
                if not number % TURN_PRODUCERS:
                    yield
        states = ProducerStates(self.expiry_ms)
        states._own = kept
        return states, count - len(kept)


def _size_of(producer: ProducerEntry) -> int:
    return _PRODUCER.size + _REMEMBERED.size * len(producer.batches)


@dataclass(frozen=True, slots=True)
class ProducerSnapshot:
    """The producers of a stream up to the offset `upto`, an entry's boundary. It only moves forward."""

    upto: int
    states: ProducerStates

    def encode(self) -> bytes:
        return _at_once(self.encoding())

    def encoding(self) -> Generator[None, None, bytes]:
        """`encode`, in turns: a large one would hold up everything else."""
        producers = sorted(self.states.items())
        parts = [_HEADER.pack(FORMAT, self.upto, len(producers))]
        for number, (producer_id, producer) in enumerate(producers, 1):
            parts.append(_PRODUCER.pack(producer_id, producer.epoch, producer.last_ms, len(producer.batches)))
            parts.extend(_REMEMBERED.pack(*remembered) for remembered in producer.batches)
            if not number % TURN_PRODUCERS:
                yield
        return b"".join(parts)

    @staticmethod
    def upto_of(value: bytes) -> int:
        """Without what it says of producers."""
        unseal("a producer snapshot", value, FORMAT)
        try:
            _, upto, _ = _HEADER.unpack_from(value)
        except error as damage:
            raise ValueCorrupt("a producer snapshot", f"{len(value)} bytes") from damage
        return int(upto)

    @classmethod
    def decode(cls, value: bytes, expiry_ms: int) -> ProducerSnapshot:
        return _at_once(cls.decoding(value, expiry_ms))

    @classmethod
    def decoding(cls, value: bytes, expiry_ms: int) -> Generator[None, None, ProducerSnapshot]:
        """`decode`, in turns."""
        unseal("a producer snapshot", value, FORMAT)
        states = ProducerStates(expiry_ms)
        try:
            _, upto, count = _HEADER.unpack_from(value)
            position = _HEADER.size
            for number in range(1, count + 1):
                producer_id, epoch, last_ms, batches = _PRODUCER.unpack_from(value, position)
                position += _PRODUCER.size
                remembered = []
                for _ in range(batches):
                    remembered.append(RememberedBatch._make(_REMEMBERED.unpack_from(value, position)))
                    position += _REMEMBERED.size
                states._own[producer_id] = ProducerEntry(epoch, last_ms, tuple(remembered))
                if not number % TURN_PRODUCERS:
                    yield
        except error as damage:
            raise ValueCorrupt("a producer snapshot", f"{len(value)} bytes") from damage
        if position != len(value):
            raise ValueCorrupt("a producer snapshot", f"{len(value) - position} bytes too many")
        return cls(upto, states)


def _by_silence(
    producers: dict[int, ProducerEntry],
) -> Generator[None, None, Iterable[tuple[int, int]]]:
    """When each wrote last, and its id: the longest silent first."""
    known = [(producer.last_ms, producer_id) for producer_id, producer in producers.items()]
    runs = []
    for first in range(0, len(known), TURN_PRODUCERS):
        runs.append(sorted(known[first : first + TURN_PRODUCERS]))
        yield
    return merge(*runs)


def _at_once(work: Generator[None, None, T]) -> T:
    while True:
        try:
            next(work)
        except StopIteration as ended:
            result: T = ended.value
            return result
