"""Brokers of the model: the append of one object over several streams, and the seal of an idle stream.

The steps are numbered as in `docs/design/0000-commit-protocol.md`. A carried append has no object: of the
steps it has only 3 and 5, and its batches lie in the entries themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tests.model.store import ABSENT, ANY, Delete, Key, Operation, Put, Reply
from tests.model.world import (
    PRODUCERS,
    STREAMS,
    Batch,
    Chunk,
    Entry,
    HighWatermark,
    Mark,
    ObjectName,
    ProducerState,
    Remembered,
    Steps,
    World,
    fold,
)

_MARGIN_STEPS = 5  # by which a broker's own clock would give up before a collector may take its mark


@dataclass(slots=True)
class Attempt:
    """A commit aimed at one version of a stream's high watermark."""

    version: int
    previous: Entry | None
    entry: Entry
    boundary: int = -1
    unsure: bool = False  # a reply was lost at this version
    tries: int = 0


@dataclass(slots=True)
class Append:
    """One object on its way into the log."""

    name: ObjectName
    chunks: dict[int, Chunk]
    staged: int | None = None  # the version of its mark
    open: dict[int, Attempt | None] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)  # streams that it is not in, and never will be
    undecided: bool = False  # somewhere a write may still land
    unclear: set[int] = field(default_factory=set)  # streams given up after a lost reply
    beside: dict[int, Chunk] = field(default_factory=dict)  # without a rule: bytes that lie elsewhere
    born: int = 0
    stood_still: int = 0  # for so many steps its broker did, clock and all (only without a rule)

    @property
    def is_carried(self) -> bool:
        return self.name.kind == "carried"


CARRIED_SHARE = 0.6
AHEAD_SHARE = 0.5


def broker(world: World) -> Steps[None]:
    while True:
        chunks = _chunks(world)
        if world.carries and world.chance(CARRIED_SHARE):
            yield from _append_carried(world, chunks)
        elif world.stages_ahead and world.chance(AHEAD_SHARE):
            yield from _append_ahead(world, chunks)
        else:
            yield from _append_object(world, chunks)


def _append_object(world: World, chunks: dict[int, Chunk]) -> Steps[None]:
    append = Append(ObjectName("wal", world.number()), chunks, born=world.now)
    staged = world.send(_stage(world, append))  # 1
    yield
    if staged is None and "staging-unsure" not in world.without:
        return  # the id is burnt: nothing is ever uploaded under it
    append.staged = None if staged is None else int(staged[0])
    yield from _upload_and_commit(world, append)


def _append_ahead(world: World, expected: dict[int, Chunk]) -> Steps[None]:
    """The mark is put for the streams that are expected, before it is known what comes. What comes of exactly
    these streams is the object. Of others: the mark is dropped, and the object has its own."""
    mark = Append(ObjectName("wal", world.number()), expected, born=world.now)
    staged = world.send(_stage(world, mark))
    yield
    if staged is None and "ahead-unsure" not in world.without:
        return
    version = None if staged is None else int(staged[0])
    for _ in range(world.random.choice((0, 2, 15, 60))):
        yield  # until something comes
    comes = _chunks_of(world, sorted(expected)) if world.chance(0.6) else _chunks(world)
    if comes.keys() != expected.keys() and "ahead-other" not in world.without:
        mark.staged, mark.failed = version, set(expected)
        world.send(_settle(world, mark))
        world.counts["marks dropped"] += 1
        yield
        yield from _append_object(world, comes)
        return
    world.counts["marks used"] += 1
    yield from _upload_and_commit(world, Append(mark.name, comes, version, born=world.now))
    if "ahead-twice" in world.without:
        again = Append(mark.name, _chunks_of(world, sorted(comes)), version, born=world.now)
        yield from _upload_and_commit(world, again)


def _upload_and_commit(world: World, append: Append) -> Steps[None]:
    if world.upload(append.name, append.chunks):  # 2
        append.open = dict.fromkeys(append.chunks)
    else:
        append.failed = set(append.chunks)
    yield
    yield from _commit(world, append)
    if append.undecided and "drop-undecided" not in world.without:
        return  # references and mark stay: the collector decides
    world.send(_settle(world, append))  # 6
    yield


def _append_carried(world: World, chunks: dict[int, Chunk]) -> Steps[None]:
    """One write, nothing before it, nothing after it: whatever comes of it, there is nothing to tidy up."""
    append = Append(ObjectName("carried", world.number()), chunks)
    world.carry(append.name, chunks)
    append.open = dict.fromkeys(chunks)
    yield from _commit(world, append)
    if "car-after" in world.without:
        for stream, batches in append.beside.items():
            world.send([Put(Key("data", stream, append.name.number), batches, ANY)])
            yield
    if "car-fallback" in world.without and append.unclear:
        yield from _append_object(world, {stream: chunks[stream] for stream in sorted(append.unclear)})


def _chunks(world: World) -> dict[int, Chunk]:
    return _chunks_of(world, world.random.sample(range(STREAMS), world.random.choice((1, 2, 2, 3))))


def _chunks_of(world: World, streams: Iterable[int]) -> dict[int, Chunk]:
    chunks: dict[int, Chunk] = {}
    for stream in streams:
        batches: list[Batch] = []
        for producer in world.random.sample((*PRODUCERS, None), world.random.choice((1, 1, 2))):
            if producer is None:
                batches.append(Batch(None, world.number(), world.random.randint(1, 2)))
                continue
            jump = world.random.choice((1, 1, 1, 1, 0, -1, 2))  # next, a retry, or one too far
            first = max(0, world.acknowledged[stream, producer] + jump)
            for sequence in range(first, first + world.random.randint(1, 2)):
                batches.append(Batch(producer, sequence, 1 + sequence % 2))
        chunks[stream] = tuple(batches)
    return chunks


def _stage(world: World, append: Append) -> list[Operation]:
    number = append.name.number
    expect = ABSENT if "stg-absent" in world.without else ANY
    mark = Mark("append", tuple(sorted(append.chunks)))
    operations: list[Operation] = [Put(Key("staging", 0, number), mark, expect)]
    if "refs-in-commit" not in world.without:
        operations += references(number, append.chunks)
    return operations


def references(number: int, streams: Iterable[int]) -> list[Operation]:
    keys = [Key("objects", 0, number), *(Key("refs", number, stream) for stream in streams)]
    return [Put(key, 1, ANY) for key in keys]


def _commit(world: World, append: Append) -> Steps[None]:
    rounds = 0
    while append.open:
        rounds += 1
        seen = world.store.find(Key("staging", 0, append.name.number))
        if "check-then-hwm" in world.without:
            yield
        if "recheck-clock" in world.without and world.chance(0.2):
            stopped = world.now
            for _ in range(world.random.randint(1, 20)):
                yield
            append.stood_still += world.now - stopped
        for stream in [stream for stream, attempt in append.open.items() if attempt is None]:
            yield from _aim(world, append, stream)  # 3
        if not append.open:
            return
        if {"no-recheck", "ahead-no-recheck"}.isdisjoint(world.without) and not append.is_carried:  # 4
            if "check-then-hwm" not in world.without:
                seen = world.store.find(Key("staging", 0, append.name.number))
            ours = seen is not None and (
                append.staged is None or seen.version == append.staged or "recheck-present" in world.without
            )
            if "recheck-clock" in world.without:
                ours = world.now - append.born - append.stood_still < world.orphan_steps - _MARGIN_STEPS
            if not ours and not ("stg-in-commit" in world.without and rounds > 1):
                world.counts["fenced"] += 1
                append.undecided = True
                return
            yield
        operations, places = _commit_write(world, append)
        reply = world.send(operations)  # 5
        yield
        if reply is None:
            for _ in range(world.random.choice((0, 0, 1, 5, 14))):
                yield  # until the request times out
        for stream in list(append.open):
            yield from _conclude(world, append, stream, reply, places[stream], rounds)
        yield


def _aim(world: World, append: Append, stream: int) -> Steps[None]:
    known: ProducerState | None = None
    if "fold-first" in world.without:
        known = yield from fold(world, stream, world.store.get("hwm", stream).value.head)
        yield
    watermark: HighWatermark
    watermark, version = world.store.get("hwm", stream)
    if watermark.boundary == -2 and "append-classic" not in world.without:
        _fail(append, stream)  # its source takes the appends
        return
    if world.chance(0.5):
        yield
    if known is None:
        known = yield from fold(world, stream, watermark.head)
    known = dict(known)
    chosen: list[int] = []
    remembered: list[Remembered] = []
    offset = watermark.end
    for place, batch in enumerate(append.chunks[stream]):
        if batch.producer is not None:
            last, recent = known.get(batch.producer, (-1, ()))
            if batch.sequence <= last:
                for sequence, old_offset in recent:
                    if sequence == batch.sequence:
                        world.acknowledge_again(stream, Remembered(batch.producer, sequence, old_offset))
                continue
            if batch.sequence > last + 1:
                continue  # out of order: refused
            known[batch.producer] = (batch.sequence, ())
            remembered.append(Remembered(batch.producer, batch.sequence, offset))
        chosen.append(place)
        offset += batch.records
    if not chosen:
        _fail(append, stream)
        return
    carried = tuple(append.chunks[stream][place] for place in chosen) if append.is_carried else None
    entry = Entry(watermark.end, offset, append.name, tuple(chosen), tuple(remembered), carried)
    boundary = -1 if "boundary-dropped" in world.without else watermark.boundary
    append.open[stream] = Attempt(version, watermark.head, entry, boundary)


def _commit_write(world: World, append: Append) -> tuple[list[Operation], dict[int, int]]:
    operations: list[Operation] = []
    places: dict[int, int] = {}
    for stream, attempt in append.open.items():
        assert attempt is not None
        places[stream] = len(operations)
        moved = HighWatermark(attempt.entry.high, attempt.entry, attempt.boundary)
        previous = _filed(world, attempt.previous, "car-file-bare")
        operations += advance(stream, moved, attempt.version, previous, world)
        if "car-beside" in world.without and append.is_carried:
            number = append.name.number
            operations.append(Put(Key("data", stream, number), attempt.entry.carried, ANY))
    if "refs-in-commit" in world.without:
        operations += references(append.name.number, append.chunks)
    if "stg-in-commit" in world.without:
        operations.append(Delete(Key("staging", 0, append.name.number)))
    return operations, places


def _filed(world: World, head: Entry | None, rule: str) -> Entry | None:
    """The head as it is filed: with its bytes."""
    return replace(head, carried=None) if head is not None and rule in world.without else head


def advance(
    stream: int, moved: HighWatermark, version: int, previous: Entry | None, world: World
) -> list[Operation]:
    """Move a high watermark, and file the head that it had."""
    operations: list[Operation] = [Put(Key("hwm", 0, stream), moved, version)]
    if previous is not None:
        expect = ANY if "prev-any" in world.without else ABSENT
        operations.append(Put(Key("index", stream, previous.high), previous, expect))
    return operations


def _conclude(
    world: World, append: Append, stream: int, reply: Reply | None, place: int, rounds: int
) -> Steps[None]:
    attempt = append.open[stream]
    assert attempt is not None
    if reply is None:
        attempt.unsure = True
    elif reply[place]:
        _succeed(world, append, stream, attempt)
        return
    elif not attempt.unsure:  # a clear no to the only write that was ever sent at this version
        append.open[stream] = None
        if rounds > 6:
            _fail(append, stream)
        return
    filed = Key("index", stream, attempt.entry.high)
    found = world.store.find(filed)
    if "idx-then-hwm" in world.without:
        yield
    watermark, version = world.store.get("hwm", stream)
    if world.chance(0.5):
        yield
    if "idx-then-hwm" not in world.without:
        found = world.store.find(filed)
    if "bare-hwm" in world.without:
        found = None
    if any(_is_ours(world, append, attempt, entry) for entry in (watermark.head, found and found.value)):
        _succeed(world, append, stream, attempt)
    elif version == attempt.version:
        attempt.tries += 1
        if attempt.tries > world.random.choice((0, 1, 2)):
            append.undecided = True  # it may still land
            append.unclear.add(stream)
            del append.open[stream]
            if "drop-undecided" in world.without:
                append.failed.add(stream)
    elif ("car-again" if append.is_carried else "append-again") in world.without:
        append.open[stream] = None
    else:
        append.unclear.add(stream)
        _fail(append, stream)  # never there, or there and compacted since: no reference is needed


def _is_ours(world: World, append: Append, attempt: Attempt, entry: Entry | None) -> bool:
    if entry is None:
        return False
    if "car-id" in world.without and append.is_carried:
        return (entry.low, entry.high) == (attempt.entry.low, attempt.entry.high)
    return entry.name == append.name


def _succeed(world: World, append: Append, stream: int, attempt: Attempt) -> None:
    world.acknowledge(stream, attempt.entry, append.chunks[stream])
    append.beside[stream] = attempt.entry.carried or ()
    del append.open[stream]


def _fail(append: Append, stream: int) -> None:
    append.failed.add(stream)
    del append.open[stream]


def _settle(world: World, append: Append) -> list[Operation]:
    number = append.name.number
    expect = ANY if append.staged is None or "stg-del-any" in world.without else append.staged
    return [
        *(Delete(Key("refs", number, stream)) for stream in sorted(append.failed)),
        Delete(Key("staging", 0, number), expect),
    ]


def seal(world: World, stream: int, watermark: HighWatermark, version: int) -> list[Operation]:
    head = _filed(world, watermark.head, "car-seal-bare")
    boundary = -1 if "seal-boundary" in world.without else watermark.boundary
    return advance(stream, HighWatermark(watermark.end, None, boundary), version, head, world)


def sealer(world: World) -> Steps[None]:
    while True:
        stream = world.random.randrange(STREAMS)
        watermark, version = world.store.get("hwm", stream)
        yield
        if watermark.head is not None and world.chance(0.3):
            world.send(seal(world, stream, watermark, version))
        yield
