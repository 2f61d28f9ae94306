"""The world of the model: a store, a bucket, a network that loses and repeats, and the oracle.

Any write and any upload may be lost, delayed for hundreds of steps, doubled, or land after its sender gave
up. What was appended is recorded at the linearization point, the put of the high watermark: the oracle does
not trust readers.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Generator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from tests.model.cleaning import Cleaned, Cleaning, CleaningOracle, Thinned, offsets_in
from tests.model.store import ABSENT, Key, Operation, Put, Reply, Store, Versioned, Violation

T = TypeVar("T")
Steps = Generator[None, None, T]
"""An actor's code: each yield is a moment at which anything else may happen."""

STREAMS = 3
PRODUCERS = ("p", "q")
ORPHAN_STEPS = (40, 80, 400)


class Batch(NamedTuple):
    producer: str | None
    sequence: int  # of a plain batch: a number of its own
    records: int


class Record(NamedTuple):
    producer: str | None
    sequence: int
    place: int  # within its batch


class Remembered(NamedTuple):
    """Where a batch of a producer lies: what a retry is answered with."""

    producer: str
    sequence: int
    offset: int


class ObjectName(NamedTuple):
    kind: str  # "wal", "parquet", "keys" or "carried": the last is only an id, and there is no object
    number: int
    stream: int = -1  # of a Parquet file, or of keys
    job: int = -1


@dataclass(frozen=True, slots=True)
class Entry:
    """An index entry: the offsets from `low` on, up to and without `high`, in one object or in the entry."""

    low: int
    high: int
    name: ObjectName
    selected: tuple[int, ...] = ()  # WAL: which batches of the chunk
    remembered: tuple[Remembered, ...] = ()
    carried: tuple[Batch, ...] | None = None  # the bytes, of a carried entry
    mirrored: bool = False  # batches of a source: the entry does not say who wrote them

    @property
    def is_wal(self) -> bool:
        """Is it in a WAL object, and so holds a reference?"""
        return self.name.kind == "wal"

    @property
    def is_carried(self) -> bool:
        return self.name.kind == "carried"

    @property
    def has_detail(self) -> bool:
        """Does it say what its producers wrote?"""
        return self.name.kind not in ("parquet", "foreign") and not self.mirrored


@dataclass(frozen=True, slots=True)
class HighWatermark:
    end: int = 0
    head: Entry | None = None
    boundary: int = -1  # -1: born here; -2: the source owns the log; else B0


Chunk = tuple[Batch, ...]
ProducerState = dict[str, tuple[int, tuple[tuple[int, int], ...]]]
"""Per producer: the last sequence, and (sequence, offset) of its last five batches."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    upto: int = 0
    producers: ProducerState = field(default_factory=dict)


class Mark(NamedTuple):
    """A staging mark: an object is being made for these streams, by an append or by a pack."""

    kind: str
    streams: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Job:
    number: int = 0
    state: str = "DONE"
    inputs: tuple[Entry, ...] = ()
    low: int = 0
    high: int = 0
    last_version: int = 0  # of the last input's key
    output: ObjectName | None = None
    merged: Entry | None = None  # of a pack: what takes the place of the inputs
    cleaning: Cleaning | None = None
    emptied: bool = False  # its file holds one record, which is superseded
    target: int = 0  # of retention: the start it raises to
    covered: int = 0  # of retention: how far the producer snapshot must reach


class World:
    def __init__(
        self,
        seed: int,
        without: Collection[str] = (),
        *,
        carries: bool = False,
        stages_ahead: bool = False,
        cleans: bool = False,
        several: bool = False,
    ) -> None:
        self.carries = carries
        self.stages_ahead = stages_ahead
        self.several = several
        self.cleaning = CleaningOracle(STREAMS) if cleans else None
        self.random = random.Random(seed)
        self.without = frozenset(without)
        self.store = Store(self._on_put)
        self.objects: dict[ObjectName, Any] = {}
        self.late: list[tuple[int, Callable[[], None]]] = []
        self.now = 0
        self.reliable = False  # from now on nothing is lost
        self.finishing = False  # from now on only what was begun is ended
        self.orphan_steps = self.random.choice(ORPHAN_STEPS)
        self.counts: Counter[str] = Counter()
        self._number = 0
        # What is true, whatever a reader sees.
        self._sent: dict[ObjectName, Any] = {}
        self._records: list[dict[int, Record]] = [{} for _ in range(STREAMS)]
        self._last_sequence: dict[tuple[int, str], int] = {}
        self._offset_of: dict[tuple[int, str, int], int] = {}
        self._plain: set[tuple[int, int]] = set()
        self.acknowledged = {(stream, name): -1 for stream in range(STREAMS) for name in PRODUCERS}
        for stream in range(STREAMS):
            self.store.write(
                [
                    Put(Key("hwm", 0, stream), HighWatermark(), ABSENT),
                    Put(Key("start", 0, stream), 0, ABSENT),
                    Put(Key("job", 0, stream), Job(), ABSENT),
                    Put(Key("snapshot", 0, stream), Snapshot(), ABSENT),
                    Put(Key("cleaned", 0, stream), Cleaned(), ABSENT),
                ]
            )

    def new_keys(self, stream: int, job: int) -> ObjectName:
        return ObjectName("keys", self.number(), stream, job)

    def number(self) -> int:
        self._number += 1
        return self._number

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    # --- the network

    def send(self, operations: list[Operation]) -> Reply | None:
        """A write, and its reply if one comes back."""
        return self._deliver(lambda: self.store.write(operations))

    def carry(self, name: ObjectName, chunks: dict[int, Chunk]) -> None:
        """What an append is made of that has no object."""
        self._sent[name] = chunks

    def upload(self, name: ObjectName, content: Any) -> bool:
        self._sent[name] = content
        return self._deliver(lambda: self._put_object(name, content)) is not None

    def delete(self, name: ObjectName) -> bool:
        return self._deliver(lambda: self._remove(name)) is not None

    def _deliver(self, action: Callable[[], T]) -> T | None:
        fate = self._fate()
        if fate in ("doubled", "late"):
            self._later(action)
        done = action() if fate in ("fine", "doubled", "no reply") else None
        return done if fate in ("fine", "doubled") else None

    def _fate(self) -> str:
        if self.reliable:
            return "fine"
        weights = {"fine": 66, "doubled": 12, "late": 10, "no reply": 7, "lost": 5}
        return self.random.choices(list(weights), list(weights.values()))[0]

    def _later(self, action: Callable[[], Any]) -> None:
        delay = self.random.randint(1, 25) if self.chance(0.4) else self.random.randint(25, 500)
        self.late.append((self.now + delay, action))

    def due(self) -> list[int]:
        return [place for place, (when, _) in enumerate(self.late) if when <= self.now]

    def land(self, place: int) -> None:
        action = self.late.pop(place)[1]
        action()
        if not self.reliable and self.chance(0.25):
            self._later(action)

    def _put_object(self, name: ObjectName, content: Any) -> bool:
        self.objects[name] = content
        return True

    def _remove(self, name: ObjectName) -> bool:
        if self.objects.pop(name, None) is not None and any(
            entry.name == name for stream in range(STREAMS) for entry in self.live(stream)
        ):
            raise Violation(f"a live {name.kind} object was deleted")
        return True

    # --- what is true

    def _on_put(self, key: Key, old: Any, new: Any) -> None:
        if key.family == "hwm" and old is not None:
            self._appended(key.name, old, new)
        elif key.family == "start" and old is not None and new < old:
            raise Violation("the start went back")
        elif self.cleaning is not None and key.family == "index":
            self._judge_cleaning(self.cleaning, key.group)
        elif self.cleaning is not None and key.family == "cleaned" and old is not None:
            start = self.store.get("start", key.name).value
            self._judge_cleaning(self.cleaning, key.name)
            self.cleaning.clean_point(key.name, new.end, self._records[key.name], start)

    def _judge_cleaning(self, oracle: CleaningOracle, stream: int) -> None:
        contents = [(entry, self.content(stream, entry)) for entry in self.live(stream)]
        if all(content is not None for _, content in contents):  # else `check` says so
            start = self.store.get("start", stream).value
            found = {offset for offset in offsets_in(contents) if offset >= start}
            oracle.judge(stream, start, self._records[stream], found, self.now)

    def _appended(self, stream: int, old: HighWatermark, new: HighWatermark) -> None:
        if new.end < old.end:
            raise Violation("the high watermark went back")
        if new.end == old.end:
            return
        head = new.head
        if head is None or head.low != old.end or head.high != new.end:
            raise Violation("offsets were skipped")
        offset = head.low
        for batch in selected(self._sent[head.name][stream], head):
            self._check_batch(stream, batch, offset)
            for record in records_of(batch):
                self._records[stream][offset] = record
                offset += 1

    def _check_batch(self, stream: int, batch: Batch, offset: int) -> None:
        if batch.producer is None:
            if (stream, batch.sequence) in self._plain:
                raise Violation("a chunk was appended twice")
            self._plain.add((stream, batch.sequence))
            return
        last = self._last_sequence.get((stream, batch.producer), -1)
        if batch.sequence <= last:
            raise Violation("a producer's batch is there twice")
        if batch.sequence > last + 1:
            raise Violation("a producer's batch is missing")
        self._last_sequence[stream, batch.producer] = batch.sequence
        self._offset_of[stream, batch.producer, batch.sequence] = offset

    def acknowledge(self, stream: int, entry: Entry, chunk: Chunk) -> None:
        offset = entry.low
        for batch in selected(chunk, entry):
            for record in records_of(batch):
                if self._records[stream].get(offset) != record:
                    raise Violation("what was acknowledged is not in the log")
                offset += 1
            if batch.producer is not None:
                self._advance_producer(stream, batch.producer, batch.sequence)
            self.counts["acknowledged"] += 1

    def acknowledge_again(self, stream: int, found: Remembered) -> None:
        if self._offset_of.get((stream, found.producer, found.sequence)) != found.offset:
            raise Violation("a retry was answered with a wrong offset")
        self._advance_producer(stream, found.producer, found.sequence)
        self.counts["acknowledged again"] += 1

    def _advance_producer(self, stream: int, producer: str, sequence: int) -> None:
        self.acknowledged[stream, producer] = max(self.acknowledged[stream, producer], sequence)

    def live(self, stream: int) -> list[Entry]:
        """The entries that count: the head, and those neither covered nor below the start."""
        head = self.store.get("hwm", stream).value.head
        start = self.store.get("start", stream).value
        found = [] if head is None else [head]
        for high, (entry, _) in reversed(self.store.scan("index", stream)):
            if high <= start:
                break
            if not found or self.low(entry, start) < found[-1].low:
                found.append(entry)
        return found[::-1]

    def low(self, entry: Entry, start: int) -> int:
        """From where on an entry counts. What lies below the start can be in no later file."""
        return entry.low if "cover-below" in self.without else max(entry.low, start)

    def content(self, stream: int, entry: Entry) -> Any:
        """What a reader of the entry gets: its object, or the bytes that it carries. None: they are gone."""
        if not entry.is_carried:
            return self.objects.get(entry.name)
        if {"car-beside", "car-after"}.isdisjoint(self.without):
            return entry.carried
        beside = self.store.find(Key("data", stream, entry.name.number))
        return None if beside is None else beside.value

    def check(self) -> None:
        """A reader finds every record from the start to the end, and it is what was appended there."""
        for stream in range(STREAMS):
            watermark: HighWatermark = self.store.get("hwm", stream).value
            start = self.store.get("start", stream).value
            seen = self._read(stream, start)
            if watermark.head is not None:
                content = self.content(stream, watermark.head)
                if content is None:
                    raise Violation("the object of a head is gone")
                seen |= expand(watermark.head, content, stream)
            for offset in range(start, watermark.end):
                if offset not in seen:
                    if self.cleaning is not None and offset in self.cleaning.gone[stream]:
                        continue
                    raise Violation("a hole")
                if seen[offset] != self._records[stream][offset]:
                    raise Violation("an offset changed")

    def _read(self, stream: int, start: int) -> dict[int, Record]:
        """For each offset the entry with the least key above it wins, if its object is there."""
        seen: dict[int, Record] = {}
        for high, (entry, _) in reversed(self.store.scan("index", stream)):
            if high <= start:
                break
            content = self.content(stream, entry)
            if content is not None:
                seen |= expand(entry, content, stream)
            elif "no-look-ahead" in self.without:
                for offset in range(entry.low, entry.high):
                    seen.pop(offset, None)
        return seen

    def check_the_end(self) -> None:
        """When all is quiet, exactly what is needed is left, and producers are known."""
        live = {stream: self.live(stream) for stream in range(STREAMS)}
        names = {entry.name for entries in live.values() for entry in entries}
        rounds = [self.store.get("cleaned", stream).value.round for stream in range(STREAMS)]
        names |= {found.keys for found in rounds if found is not None}
        leaked = {name.kind for name in self.objects if name not in names}
        if leaked:
            raise Violation("leaked objects: " + ", ".join(sorted(leaked)))
        needed = {
            (entry.name.number, stream)
            for stream, entries in live.items()
            for entry in entries
            if entry.is_wal
        }
        have = {
            (number, stream) for number, streams in self.store.groups("refs").items() for stream in streams
        }
        if needed - have:
            raise Violation("a live entry without a reference")
        if have - needed:
            raise Violation("a leaked reference")
        if self.store.scan("staging", 0):
            raise Violation("a leaked staging mark")
        if any(numbers - {name.number for name in names} for numbers in self.store.groups("data").values()):
            raise Violation("leaked bytes")
        if {number for number, _ in self.store.scan("objects", 0)} != {number for number, _ in needed}:
            raise Violation("a leaked object key")
        for stream, entries in live.items():
            head = self.store.get("hwm", stream).value.head
            if len(self.store.scan("index", stream)) != len(entries) - (head is not None):
                raise Violation("a leaked index entry")
            known = finish(fold(self, stream, head))
            for producer in PRODUCERS:
                last = known.get(producer, (-1, ()))[0]
                if not self._is_known(stream, producer, last):
                    raise Violation("the state of a producer was lost")

    def _is_known(self, stream: int, producer: str, last: int) -> bool:
        """Whether that is the sequence that the log must remember, -1 for none."""
        return last == self._last_sequence.get((stream, producer), -1)


def selected(chunk: Chunk, entry: Entry) -> list[Batch]:
    return [chunk[place] for place in entry.selected]


def records_of(batch: Batch) -> list[Record]:
    return [Record(batch.producer, batch.sequence, place) for place in range(batch.records)]


def expand(entry: Entry, content: Any, stream: int) -> dict[int, Record]:
    """The records of an entry by their offsets."""
    if isinstance(content, Thinned):
        return dict(content)
    if not entry.has_detail:
        return {offset: content[offset] for offset in range(entry.low, entry.high)}
    batches = content if entry.is_carried else selected(content[stream], entry)
    records = [record for batch in batches for record in records_of(batch)]
    return dict(enumerate(records, entry.low))


def fold_entry(known: ProducerState, entry: Entry) -> None:
    for producer, sequence, offset in entry.remembered:
        recent = known.get(producer, (-1, ()))[1]
        known[producer] = (sequence, (*recent, (sequence, offset))[-5:])


def fold(world: World, stream: int, head: Entry | None) -> Steps[ProducerState]:
    """The producers of a stream: the head, which the caller has read, then the index, then the snapshot."""
    snapshot: Snapshot | None = None
    if "snap-first" in world.without:
        snapshot = world.store.get("snapshot", stream).value
        yield
    entries: list[tuple[int, Versioned]] = world.store.scan("index", stream)
    if world.chance(0.5):
        yield
    if snapshot is None:
        snapshot = world.store.get("snapshot", stream).value
    assert snapshot is not None
    known = dict(snapshot.producers)
    for _, (entry, _) in entries:
        if _is_folded(world, entry) and entry.low >= snapshot.upto:
            fold_entry(known, entry)
    if (
        head is not None
        and _is_folded(world, head)
        and head.low >= snapshot.upto
        and head.high not in dict(entries)
    ):
        fold_entry(known, head)
    return known


def _is_folded(world: World, entry: Entry) -> bool:
    return entry.has_detail and not (entry.is_carried and "car-no-fold" in world.without)


def finish(steps: Steps[T]) -> T:
    """Run an actor's code to its end at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
