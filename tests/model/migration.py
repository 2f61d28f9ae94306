"""A stream of the model that began elsewhere: its source owns it first, a mirror copies the tail, and a
switch gives it to the brokers.

What the source wrote is known from the start: foreign segments up to T, then batches that a mirror brings in,
byte for byte. The oracle listens at the put of the high watermark, as for every stream: while the source owns
the log, what comes in is the source's; the boundary moves once, to the end, and never again; and no segment
of the source is ever deleted.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tests.model.broker import advance, broker, sealer
from tests.model.collector import collector
from tests.model.jobs import worker
from tests.model.schedule import STEPS, play
from tests.model.store import ANY, Key, Operation, Put, Violation
from tests.model.world import (
    PRODUCERS,
    Batch,
    Entry,
    HighWatermark,
    ObjectName,
    Record,
    Remembered,
    Snapshot,
    Steps,
    World,
    records_of,
)

CLASSIC = -2
MIGRATED = 0  # the stream

RULES = {
    "append-classic": "a broker appends while the source owns the log",
    "mirror-any": "the mirror commits without the version of the high watermark",
    "mirror-late": "the mirror commits to a stream that was switched",
    "switch-any": "the switch is put without the version of the high watermark",
    "switch-again": "a stream that is ours is switched again",
    "boundary-dropped": "an append does not carry the boundary on",
    "seal-boundary": "a seal does not carry the boundary on",
    "attach-no-snapshot": "a stream is laid down without the producers that its source knew",
}


class MigratingWorld(World):
    def __init__(self, seed: int, without: Collection[str] = ()) -> None:
        self._is_laid = False
        super().__init__(seed, without)
        self.batches = self._written_by_source()
        self.source: dict[int, Record] = {}
        self.places: list[tuple[int, Batch]] = []
        for batch in self.batches:
            self.places.append((len(self.source), batch))
            self.source |= dict(enumerate(records_of(batch), len(self.source)))
        self.source_end = len(self.source)
        tiered = self.random.randint(1, len(self.batches) - 1)
        self._lay_down(tiered)
        self._is_laid = True

    def _written_by_source(self) -> list[Batch]:
        next_of = dict.fromkeys(PRODUCERS, 0)
        found: list[Batch] = []
        for _ in range(self.random.randint(4, 9)):
            producer = self.random.choice(PRODUCERS)
            found.append(Batch(producer, next_of[producer], 1 + next_of[producer] % 2))
            next_of[producer] += 1
        return found

    def _lay_down(self, tiered: int) -> None:
        """Segments of two batches at most; then the producers, and the high watermark last."""
        operations: list[Operation] = []
        known: dict[str, tuple[int, tuple[tuple[int, int], ...]]] = {}
        for first in range(0, tiered, 2):
            part = self.places[first : min(first + 2, tiered)]
            low, high = part[0][0], part[-1][0] + part[-1][1].records
            name = ObjectName("foreign", self.number())
            self.objects[name] = {offset: self.source[offset] for offset in range(low, high)}
            operations.append(Put(Key("index", MIGRATED, high), Entry(low, high, name), ANY))
            for offset, batch in part:
                assert batch.producer is not None
                self._check_batch(MIGRATED, batch, offset)
                self._records[MIGRATED] |= dict(enumerate(records_of(batch), offset))
                recent = known.get(batch.producer, (-1, ()))[1]
                known[batch.producer] = batch.sequence, (*recent, (batch.sequence, offset))[-5:]
        end = self.places[tiered - 1][0] + self.places[tiered - 1][1].records
        if "attach-no-snapshot" in self.without:
            known = {}
        operations.append(Put(Key("snapshot", 0, MIGRATED), Snapshot(end, known), ANY))
        operations.append(Put(Key("hwm", 0, MIGRATED), HighWatermark(end, None, CLASSIC), ANY))
        self.store.write(operations)
        self.segments = {name: self.objects[name] for name in self.objects if name.kind == "foreign"}
        for batch in self.batches:
            assert batch.producer is not None
            self._advance_producer(MIGRATED, batch.producer, batch.sequence)

    def _on_put(self, key: Key, old: Any, new: Any) -> None:
        if not self._is_laid:
            return
        super()._on_put(key, old, new)
        if key != Key("hwm", 0, MIGRATED):
            return
        if old.boundary == CLASSIC and new.boundary != CLASSIC:
            if new.boundary != old.end or new.end != old.end:
                raise Violation("a switch moved the end")
            self.counts["switches"] += 1
        elif old.boundary != new.boundary:
            raise Violation("the boundary changed")
        if old.boundary == CLASSIC:
            for offset in range(old.end, new.end):
                if self._records[MIGRATED][offset] != self.source.get(offset):
                    raise Violation("what is not the source's came in while it owned the log")
            self.counts["mirrored"] += new.end > old.end
        elif new.end > old.end and old.boundary >= 0:
            if new.head is not None and new.head.name.kind == "carried":
                raise Violation("the mirror wrote behind the boundary")
            self.counts["appended behind the boundary"] += 1

    def _remove(self, name: ObjectName) -> bool:
        if name.kind == "foreign":
            raise Violation("a borrowed segment was deleted")
        return super()._remove(name)

    def check_the_end(self) -> None:
        if any(name not in self.objects for name in self.segments):
            raise Violation("a segment of the source is gone")
        live = {entry.name for entry in self.live(MIGRATED)}
        for name in self.segments:
            if name not in live:
                del self.objects[name]  # it is the source's: nothing here need keep it, or may delete it
        super().check_the_end()
        self.objects |= self.segments


def mirror(world: World) -> Steps[None]:
    """Brings in what the source has behind its tier. As it is carried, nothing is left behind by a crash."""
    assert isinstance(world, MigratingWorld)
    while True:
        watermark: HighWatermark
        watermark, version = world.store.get("hwm", MIGRATED)
        yield
        if watermark.boundary == CLASSIC or "mirror-late" in world.without:
            following = [place for place in world.places if place[0] >= watermark.end]
            taken = following[: world.random.randint(1, 2)]
            if "mirror-late" in world.without and not taken and watermark.boundary >= 0:
                taken = world.places[-1:]
            if taken:
                yield from _bring_in(world, watermark, version, [batch for _, batch in taken])
        yield


def _bring_in(
    world: MigratingWorld, watermark: HighWatermark, version: int, batches: list[Batch]
) -> Steps[None]:
    name = ObjectName("carried", world.number())
    world.carry(name, {MIGRATED: tuple(batches)})
    offset = watermark.end
    remembered: list[Remembered] = []
    for batch in batches:
        assert batch.producer is not None
        remembered.append(Remembered(batch.producer, batch.sequence, offset))
        offset += batch.records
    chosen = tuple(range(len(batches)))
    entry = Entry(watermark.end, offset, name, chosen, tuple(remembered), tuple(batches))
    if world.chance(0.5):
        yield
    operations = advance(
        MIGRATED, HighWatermark(offset, entry, watermark.boundary), version, watermark.head, world
    )
    if "mirror-any" in world.without:
        operations[0] = Put(Key("hwm", 0, MIGRATED), HighWatermark(offset, entry, watermark.boundary), ANY)
    world.send(operations)


def switcher(world: World) -> Steps[None]:
    """Once all is mirrored: one compare-and-set. Several may be at it."""
    assert isinstance(world, MigratingWorld)
    while True:
        watermark: HighWatermark
        watermark, version = world.store.get("hwm", MIGRATED)
        yield
        is_ready = watermark.boundary == CLASSIC and watermark.end == world.source_end
        if is_ready or ("switch-again" in world.without and watermark.end > world.source_end):
            switched = HighWatermark(watermark.end, watermark.head, watermark.end)
            if world.chance(0.5):
                yield
            expect = ANY if "switch-any" in world.without else version
            world.send([Put(Key("hwm", 0, MIGRATED), switched, expect)])
        yield


def run_migration(seed: int, without: Collection[str] = (), steps: int = STEPS) -> MigratingWorld:
    """Raises `Violation` where a promise is broken."""
    world = MigratingWorld(seed, without)
    kinds = [broker] * world.random.choice((1, 2, 3)) + [mirror] * 2 + [switcher] * 2
    ending = len(kinds)
    kinds += [worker] * 3 + [collector] * 2 + [sealer]
    play(world, kinds, ending, steps)
    return world
