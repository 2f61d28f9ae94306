"""The live move in the model: a source that clients still write to, mirrors, migrators that fence, measure,
decide or go back, and forwarders that wake up late.

The source is Kafka as far as it matters here (`kafka_source.py`). All that a migrator knows of it is what it
has asked, one question at a time, and anything may happen between two questions. The oracle knows both sides:
while the source owns the log, what comes in is the source's; and from the boundary on, whatever the source
acknowledges, or had acknowledged, must lie below the boundary, at the same offset.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from tests.model.broker import Append, advance, broker, references, sealer
from tests.model.collector import collector
from tests.model.jobs import worker
from tests.model.kafka_source import MOMENT, KafkaSource, Leadership, Outcome
from tests.model.schedule import STEPS, play
from tests.model.store import ABSENT, ANY, Delete, Key, Operation, Put, Violation
from tests.model.world import (
    PRODUCERS,
    Batch,
    Entry,
    HighWatermark,
    Mark,
    ObjectName,
    ProducerState,
    Record,
    Snapshot,
    Steps,
    World,
    fold,
    records_of,
)

CLASSIC = -2
MOVED = 0  # the stream
GONE = -1  # the offset of a batch of which only its number is known
RECORD = Key("record", 0, 0)
PATIENCE = 1000  # steps after which a migrator goes back

MIRROR_RULES = {
    "append-classic": "a broker appends while the source owns the log",
    "mirror-any": "a mirror commits without the version of the high watermark",
    "mirror-late": "a mirror commits to a stream that was switched",
    "mirror-beside": "the mirrored entry is filed with the commit, whatever becomes of that",
    "mirror-no-recheck": "a mirror commits without looking at its staging mark",
    "mirror-drop": "a mirror whose reply was lost drops reference and mark",
    "mirror-head-only": "after a lost reply only the head is looked at, and not the index",
    "mirror-uncommitted": "a mirror reads what not all replicas have",
    "mirror-diverged": "a mirror does not ask whether the source's history is still the one it has",
    "snapshot-early": "the producers are put with the mirror's commit, whatever becomes of that",
    "snapshot-none": "the producers of mirrored batches are never put",
}
SWITCH_RULES = {
    "switch-any": "the switch is put without the version of the high watermark",
    "switch-again": "a stream that is ours is switched again",
    "no-probe": "the fence is believed in once it is put up",
    "end-before-fence": "the source's end is measured before the fence is up",
    "end-once": "the source's end is measured once",
    "no-snapshot": "a stream is switched though the producers of what was mirrored are not put",
    "aim-late": "the version that a decision expects is read when it is sent",
    "wanted-unasked": "a migrator does not look whether the move is still wanted, once it has aimed",
    "back-unsaid": "a migrator lifts the fence without having said so before",
    "back-no-void": "a migrator lifts the fence while another may still decide",
    "back-decided": "a migrator lifts the fence though a boundary stands",
    "seed-none": "producers of which the source has no record any more are not taken over from it",
    "seed-any": "they are put without the version of the producers that they are added to",
    "seed-unsure": "a stream is switched though it is not sure that they were put",
}
RULES = MIRROR_RULES | SWITCH_RULES
RARE = {
    "probe-any-leader": "a leader that was never asked is trusted",
    "end-by-watermark": "the source's high watermark counts as its end",
    "no-history": "the source is not asked whether what was mirrored is still its history",
    "lift-late": "a migrator lifts the fence without looking whether that is still to be done",
}
"""Hundreds of schedules hold without these, as so much has to come together: `tests/unit/migration/source`
keeps the first three, in time that is its own."""


@dataclass(frozen=True, slots=True)
class Move:
    """The migration's record. BACK: the fence is to be lifted, and nobody may decide."""

    attempt: int = 0
    state: str = "MIRRORING"  # or PENDING, BACK, SWITCHED


class MovingWorld(World):
    def __init__(self, seed: int, without: Collection[str] = ()) -> None:
        super().__init__(seed, without)
        self.source = KafkaSource(self.random, lambda: self.now, self._source_acknowledged)
        self._write_before_the_link()
        start = self.source.start
        self.store.write(
            [
                Put(Key("hwm", 0, MOVED), HighWatermark(start, boundary=CLASSIC), ANY),
                Put(Key("start", 0, MOVED), start, ANY),
                Put(Key("snapshot", 0, MOVED), Snapshot(start), ANY),
                Put(RECORD, Move(), ABSENT),
            ]
        )
        self.epochs: dict[int, int] = {}  # of mirrored batches, by their end: what their bytes say

    def _write_before_the_link(self) -> None:
        """Of some producers the source has no record any more, and knows them nevertheless. The last of their
        batches may come again, as its answer may have been lost."""
        for producer in PRODUCERS[: self.random.choice((0, 1, 2))]:
            last = self.random.randrange(3)
            self.source.write_and_delete(Batch(producer, each, 1 + each % 2) for each in range(last + 1))
            self._last_sequence[MOVED, producer] = last
            self._offset_of[MOVED, producer, last] = GONE
            self.acknowledged[MOVED, producer] = last - self.random.randrange(2)

    def _is_known(self, stream: int, producer: str, last: int) -> bool:
        """Those of which nothing was mirrored need not be known before there is a boundary."""
        if super()._is_known(stream, producer, last):
            return True
        is_gone = self._offset_of.get((stream, producer, self._last_sequence[stream, producer])) == GONE
        return last == -1 and is_gone and self.watermark.boundary == CLASSIC

    @property
    def watermark(self) -> HighWatermark:
        found: HighWatermark = self.store.get("hwm", MOVED).value
        return found

    def due(self) -> list[int]:
        self.source.catch_up()
        return super().due()

    def _on_put(self, key: Key, old: Any, new: Any) -> None:
        if key == Key("hwm", 0, MOVED) and old is not None and old.boundary == -1:
            return  # it is laid down
        super()._on_put(key, old, new)
        if key != Key("hwm", 0, MOVED) or old is None:
            return
        if old.boundary == CLASSIC:
            self._check_mirrored(old, new)
        elif old.boundary != new.boundary:
            raise Violation("the boundary changed")
        elif new.end > old.end:
            if new.head is not None and new.head.mirrored:
                raise Violation("a mirror wrote behind the boundary")
            self.counts["appended behind the boundary"] += 1
        if old.boundary == CLASSIC and new.boundary != CLASSIC:
            self._check_switch(old, new)

    def _check_mirrored(self, old: HighWatermark, new: HighWatermark) -> None:
        for offset in range(old.end, new.end):
            if self._records[MOVED][offset] not in self.source.ever[offset]:
                raise Violation("what is not the source's came in while it owned the log")
        self.counts["mirrored"] += new.end > old.end

    def _check_switch(self, old: HighWatermark, new: HighWatermark) -> None:
        if new.boundary != old.end or new.end != old.end:
            raise Violation("a switch moved the end")
        self.source.catch_up()
        for offset, batch in self.source.acknowledged.items():
            self._check_kept(offset, batch, new.boundary)
        self.counts["switches"] += 1

    def _source_acknowledged(self, offset: int, batch: Batch) -> None:
        if batch.producer is not None:
            self._advance_producer(MOVED, batch.producer, batch.sequence)
        self.counts["acknowledged by the source"] += 1
        if self.watermark.boundary >= 0:
            self._check_kept(offset, batch, self.watermark.boundary)

    def _check_kept(self, offset: int, batch: Batch, boundary: int) -> None:
        for place, record in enumerate(records_of(batch), offset):
            if place < self.source.start:
                continue  # the source has deleted it before it was linked
            if place >= boundary or self._records[MOVED].get(place) != record:
                raise Violation("what the source acknowledged is not in the log")

    def sent_at(self, entry: Entry) -> dict[int, Record]:
        records = [record for batch in self._sent[entry.name][MOVED] for record in records_of(batch)]
        return dict(enumerate(records, entry.low))

    def upload_mirrored(self, name: ObjectName, batches: list[Batch], offset: int) -> bool:
        self.carry(name, {MOVED: tuple(batches)})
        content = self.sent_at(Entry(offset, offset, name))
        return self._deliver(lambda: self._put_object(name, content)) is not None


# --- the mirror


def mirror(world: World) -> Steps[None]:
    assert isinstance(world, MovingWorld)
    while True:
        watermark, version = world.store.get("hwm", MOVED)
        yield
        if watermark.boundary == CLASSIC or "mirror-late" in world.without:
            snapshot: Snapshot
            snapshot, at = world.store.get("snapshot", MOVED)
            is_behind = watermark.boundary == CLASSIC and snapshot.upto < watermark.end
            if is_behind and {"snapshot-none", "snapshot-early"}.isdisjoint(world.without):
                yield from _move_snapshot(world, watermark, snapshot, at)
            else:
                yield from _bring_in(world, watermark, version, snapshot, at)
        yield


def _move_snapshot(
    world: MovingWorld, watermark: HighWatermark, snapshot: Snapshot, version: int
) -> Steps[None]:
    """Of what is committed, from its bytes: an entry of mirrored batches does not say who wrote them."""
    entries = [entry for _, (entry, _) in world.store.scan("index", MOVED)]
    entries += [] if watermark.head is None else [watermark.head]
    records: dict[int, Record] = {}
    for entry in entries:
        found = world.content(MOVED, entry)
        if entry.high <= snapshot.upto or found is None:
            continue
        records |= {offset: record for offset, record in found.items() if offset >= snapshot.upto}
        yield
    if records.keys() != set(range(snapshot.upto, watermark.end)):
        return  # the index has changed meanwhile
    moved = Snapshot(watermark.end, _with(dict(snapshot.producers), records))
    world.send([Put(Key("snapshot", 0, MOVED), moved, version)])
    yield


def _with(known: ProducerState, records: dict[int, Record]) -> ProducerState:
    for offset, record in sorted(records.items()):
        if record.producer is not None and record.place == 0:
            recent = known.get(record.producer, (-1, ()))[1]
            known[record.producer] = record.sequence, (*recent, (record.sequence, offset))[-5:]
    return known


def _bring_in(
    world: MovingWorld, watermark: HighWatermark, version: int, snapshot: Snapshot, at: int
) -> Steps[None]:
    """As an append: mark, object, look at the mark, one write. The entry is the head of the high watermark:
    what is put beside a compare-and-set stays when that fails."""
    epoch = None if "mirror-diverged" in world.without else world.epochs.get(watermark.end)
    batches = world.source.read(watermark.end, epoch, uncommitted="mirror-uncommitted" in world.without)
    if "mirror-late" in world.without and watermark.boundary >= 0 and not batches:
        batches = [(Batch(None, world.number(), 1), 0)]
    yield
    if not batches:
        return
    taken = [batch for batch, _ in batches]
    name = ObjectName("wal", world.number())
    append = Append(name, {MOVED: tuple(taken)}, born=world.now)
    staged = world.send(
        [
            Put(Key("staging", 0, name.number), Mark("append", (MOVED,)), ANY),
            *references(name.number, [MOVED]),
        ]
    )
    yield
    if staged is None:
        return
    append.staged = int(staged[0])
    end = watermark.end + sum(batch.records for batch in taken)
    world.epochs[end] = batches[-1][1]
    if not world.upload_mirrored(name, taken, watermark.end):
        yield from _settle(world, append, dropped=True)
        return
    for _ in range(world.random.choice((1, 1, 1, 5, 20))):
        yield
    entry = Entry(watermark.end, end, name, tuple(range(len(taken))), mirrored=True)
    while True:
        if "mirror-no-recheck" not in world.without:
            seen = world.store.find(Key("staging", 0, name.number))
            if seen is None or seen.version != append.staged:
                return  # a collector decides what becomes of it
            yield
        reply = world.send(_commit(world, watermark, version, entry, snapshot, at))
        yield
        if reply is not None and reply[0]:
            yield from _settle(world, append, dropped=False)
            return
        if reply is None and world.chance(0.5):
            if "mirror-drop" in world.without:
                yield from _settle(world, append, dropped=True)
            return  # given up: it may still land
        found, version = world.store.get("hwm", MOVED)
        yield
        filed = world.store.find(Key("index", MOVED, entry.high))
        if "mirror-head-only" in world.without:
            filed = None
        if any(each is not None and each.name == name for each in (found.head, filed and filed.value)):
            yield from _settle(world, append, dropped=False)
            return
        if found.end != entry.low or found.boundary != CLASSIC:
            if reply is not None and "mirror-late" not in world.without:
                yield from _settle(world, append, dropped=True)
            return
        watermark = found  # sealed meanwhile, or not written at all


def _commit(
    world: MovingWorld, watermark: HighWatermark, version: int, entry: Entry, snapshot: Snapshot, at: int
) -> list[Operation]:
    operations = advance(
        MOVED, HighWatermark(entry.high, entry, watermark.boundary), version, watermark.head, world
    )
    if "mirror-beside" in world.without:
        operations.append(Put(Key("index", MOVED, entry.high), entry, ABSENT))
    if "mirror-any" in world.without:
        operations[0] = Put(Key("hwm", 0, MOVED), HighWatermark(entry.high, entry, watermark.boundary), ANY)
    if "snapshot-early" in world.without:
        producers = _with(dict(snapshot.producers), world.sent_at(entry))
        operations.append(Put(Key("snapshot", 0, MOVED), Snapshot(entry.high, producers), at))
    return operations


def _settle(world: World, append: Append, *, dropped: bool) -> Steps[None]:
    number = append.name.number
    assert append.staged is not None
    operations: list[Operation] = [Delete(Key("refs", number, MOVED))] if dropped else []
    world.send([*operations, Delete(Key("staging", 0, number), append.staged)])
    yield


# --- who asks for the move, and who does it


def operator(world: World) -> Steps[None]:
    assert isinstance(world, MovingWorld)
    while True:
        move: Move
        move, version = world.store.get("record", 0)
        yield
        if move.state == "MIRRORING" and world.chance(0.4):
            world.send([Put(RECORD, Move(move.attempt + 1, "PENDING"), version)])
        yield


def migrator(world: World) -> Steps[None]:
    """Any number of them, at the same topic, in the same step or in another."""
    assert isinstance(world, MovingWorld)
    while True:
        move: Move
        move, version = world.store.get("record", 0)
        yield
        if "switch-again" in world.without and world.watermark.boundary >= 0:
            watermark, aimed = world.store.get("hwm", MOVED)
            again = HighWatermark(watermark.end, watermark.head, watermark.end)
            world.send([Put(Key("hwm", 0, MOVED), again, aimed)])
        elif move.state == "PENDING":
            yield from _attempt(world, move, version)
        elif move.state == "BACK":
            yield from _lift(world, version)
        yield


@dataclass(slots=True)
class Seen:
    """What a migrator has found out. `switch.py` and `partition_switch.py` are the real one."""

    believed: Leadership  # what the metadata said last
    fenced: Leadership | None = None
    settled: tuple[Leadership, int, int] | None = None  # leadership, end, when
    end: int | None = None


def _attempt(world: MovingWorld, move: Move, version: int) -> Steps[None]:
    source, until = world.source, world.now + PATIENCE
    seen = Seen(source.leadership)
    for _ in range(world.random.choice((1, 1, 3, 15))):
        yield
    if "end-before-fence" in world.without:
        seen.end = source.measured_end()
        yield
    source.put_up()
    yield
    while world.now < until:
        if world.watermark.boundary >= 0:
            world.send([Put(RECORD, Move(move.attempt, "SWITCHED"), version)])
            yield
            return
        if not (yield from _look(world, seen)):
            continue
        if (yield from _decide(world, move, version, seen)):
            return
    yield from _go_back(world, move, version)


def _look(world: MovingWorld, seen: Seen) -> Steps[bool]:
    """One question. True once the source is seen to have ended."""
    source = world.source
    if seen.fenced is None:
        if source.refuses(seen.believed) or "no-probe" in world.without:
            seen.fenced = seen.believed  # also of a broker that leads no more: it refuses before it looks
        yield
        return False
    if "end-before-fence" in world.without:
        return True
    asked = source.leadership if "probe-any-leader" in world.without else seen.fenced
    found = source.measure(asked)
    if found is None:
        seen.fenced = seen.settled = None
        seen.believed = source.leadership
        yield
        return False
    committed, end = found
    if "end-by-watermark" in world.without:
        end = committed
    if committed != end:
        seen.settled = None
    elif seen.settled is None or seen.settled[:2] != (asked, end):
        seen.settled = asked, end, world.now
    if seen.settled is None:
        yield
        return False
    if world.now - seen.settled[2] < MOMENT and "end-once" not in world.without:
        yield
        return False
    seen.end = end
    return True


def _decide(world: MovingWorld, move: Move, version: int, seen: Seen) -> Steps[bool]:
    """The version that the decision will expect is read first; then it is looked whether the move is still
    wanted, and whether all is as it should be. So whoever goes back can make it void."""
    source = world.source
    watermark: HighWatermark
    watermark, aimed = world.store.get("hwm", MOVED)
    yield
    if watermark.boundary != CLASSIC or watermark.end != seen.end:
        return False
    now: Move = world.store.get("record", 0).value
    if now != move and "wanted-unasked" not in world.without:
        return True
    yield
    assert seen.fenced is not None
    if world.store.get("snapshot", MOVED).value.upto != watermark.end and "no-snapshot" not in world.without:
        return False
    epoch = world.epochs.get(watermark.end)
    if "no-history" not in world.without and epoch is not None:
        if source.end_of_epoch(epoch) < watermark.end:
            yield from _go_back(world, move, version)
            return True
        yield
    known = yield from fold(world, MOVED, watermark.head)
    theirs = source.producers()
    if any(theirs.get(producer) != last for producer, (last, _) in known.items()):
        yield  # the fold of the model has no fault, so this rule is not among those that are taken out
        return False
    unknown = {producer: last for producer, last in theirs.items() if producer not in known}
    last = source.measure(seen.fenced)
    yield
    if last is None and "probe-any-leader" not in world.without:
        seen.fenced = seen.settled = None
        return False
    if (
        last is not None
        and last[1] != watermark.end
        and {"end-before-fence", "end-by-watermark"}.isdisjoint(world.without)
    ):
        return False
    if unknown and not (yield from _take_over(world, watermark.end, unknown)):
        return False
    if "aim-late" in world.without:
        watermark, aimed = world.store.get("hwm", MOVED)
        if watermark.end != seen.end or watermark.boundary != CLASSIC:
            return False
        yield
    switched = HighWatermark(watermark.end, watermark.head, watermark.end)
    world.send([Put(Key("hwm", 0, MOVED), switched, ANY if "switch-any" in world.without else aimed)])
    yield
    return False


def _take_over(world: MovingWorld, end: int, producers: dict[str, int]) -> Steps[bool]:
    """The last thing before a decision: so the source has nothing of them that is not below the boundary."""
    if "seed-none" in world.without:
        return True
    snapshot: Snapshot
    snapshot, at = world.store.get("snapshot", MOVED)
    yield
    if snapshot.upto != end:
        return False
    seeds = {producer: (last, ((last, GONE),)) for producer, last in producers.items()}
    seeded = Snapshot(end, {**snapshot.producers, **seeds})
    world.send([Put(Key("snapshot", 0, MOVED), seeded, ANY if "seed-any" in world.without else at)])
    yield
    found: Snapshot = world.store.get("snapshot", MOVED).value
    yield
    world.counts["taken over"] += 1
    return "seed-unsure" in world.without or producers.keys() <= found.producers.keys()


def _go_back(world: MovingWorld, move: Move, version: int) -> Steps[None]:
    """It is said first: from then on no migrator begins to decide."""
    if "back-unsaid" in world.without:
        if (yield from _void(world)):
            world.source.lift()
        return
    world.send([Put(RECORD, Move(move.attempt, "BACK"), version)])
    yield


def _lift(world: MovingWorld, version: int) -> Steps[None]:
    """What had begun before it was said is made void: the high watermark gets another version. Only then is
    it looked whether anything was decided."""
    move: Move = world.store.get("record", 0).value
    if not (yield from _void(world)):
        world.send([Put(RECORD, Move(move.attempt, "SWITCHED"), version)])
        yield
        return
    if world.store.get("record", 0).version != version and "lift-late" not in world.without:
        return
    world.source.lift()  # a call that is on its way for long is not in the model
    world.counts["lifted"] += 1
    yield
    world.send([Put(RECORD, Move(move.attempt, "MIRRORING"), version)])
    yield


def _void(world: MovingWorld) -> Steps[bool]:
    """False where a boundary stands."""
    while True:
        watermark, version = world.store.get("hwm", MOVED)
        yield
        if watermark.boundary != CLASSIC and "back-decided" not in world.without:
            return False
        if "back-no-void" in world.without:
            return True
        world.send([Put(Key("hwm", 0, MOVED), watermark, version)])
        yield
        if world.store.get("hwm", MOVED).version != version:
            found: HighWatermark = world.store.get("hwm", MOVED).value
            return found.boundary == CLASSIC or "back-decided" in world.without


# --- who writes to the source


def writer(world: World) -> Steps[None]:
    """A client, or a forwarder: it may stand still with a request in its hand, and send it long after."""
    assert isinstance(world, MovingWorld)
    producer = world.random.choice((*PRODUCERS, None))
    while True:
        sequence = world.number() if producer is None else world.acknowledged[MOVED, producer] + 1
        batch = Batch(
            producer, sequence, world.random.randint(1, 2) if producer is None else 1 + sequence % 2
        )
        for _ in range(world.random.choice((0, 0, 1, 4, 30))):
            yield
        outcome: Outcome = world.source.produce(batch)
        for _ in range(40):
            if outcome.is_over:
                break
            yield
        yield


def elections(world: World) -> Steps[None]:
    assert isinstance(world, MovingWorld)
    is_unclean = world.chance(0.5)
    while True:
        if world.chance(0.03):
            world.source.elect(unclean=is_unclean and world.chance(0.7))
            world.counts["elections"] += 1
        yield


def run_move(seed: int, without: Collection[str] = (), steps: int = 4 * STEPS) -> MovingWorld:
    """Raises `Violation` where a promise is broken."""
    world = MovingWorld(seed, without)
    kinds = [broker] * world.random.choice((1, 2)) + [migrator] * 3 + [writer] * 3 + [operator, elections]
    ending = len(kinds)
    kinds += [mirror] * 2 + [worker] * 2 + [collector] * 2 + [sealer]
    play(world, kinds, ending, steps, last=(mirror, worker, collector))
    return world
