"""The machine of jobs: every pair of state and event, and any order of crashes, repeats and lost replies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import get_args
from uuid import UUID

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dray.log.entries import BatchReference, EntryKind, IndexEntry, decode_start, pack_batches
from dray.log.jobs.machine import (
    Abandoned,
    Awaits,
    CaughtUp,
    Compaction,
    EntriesSeen,
    Event,
    FileWritten,
    IllegalEvent,
    Input,
    InTable,
    Job,
    JobState,
    JobStep,
    LastInputSeen,
    LeftTable,
    NumbersSpent,
    Packed,
    Packing,
    Planned,
    Resumed,
    StartPlanned,
    StartSeen,
    StreamGone,
    StreamSwept,
    SwapImpossible,
    WithoutTable,
    advance,
    dereference,
    inside,
    is_moved,
    put_job,
    put_start,
    removal,
    replaced,
    swapped_entry,
)
from dray.log.jobs.values import WrittenFile
from dray.log.parquet.statistics import RowGroup
from dray.log.types import Versioned
from dray.metadata import keys
from dray.metadata.contract import Delete, Operation, Put
from dray.metadata.memory import MemoryState
from dray.metadata.values import ValueCorrupt

STREAM = 7
END = 4


def wal_entry(number: int) -> IndexEntry:
    """One record, in an object of its own."""
    table = pack_batches([BatchReference(0, 10, 1, 0, number, number, -1, -1, -1)])
    return IndexEntry(
        number, number + 1, 10 * (number + 1), 0, 5, 5, 5, number, UUID(int=number + 1), "wal", table
    )


def carried_entry(number: int) -> IndexEntry:
    """The same with its record in itself."""
    table = pack_batches([BatchReference(0, 70, 1, 0, number, number, -1, -1, -1)])
    return replace(wal_entry(number), path="", table=table, kind=EntryKind.CARRIED, data=bytes(70))


def a_packing(entries: list[Versioned[IndexEntry]], wal_id: UUID) -> Packing:
    references = [reference for entry in entries for _, reference in entry.value.batches()]
    merged = IndexEntry.packed([entry.value for entry in entries], wal_id, "packed", references)
    return Packing.of(entries, merged)


def a_file(attempt: int, start: int, end: int) -> WrittenFile:
    return WrittenFile(
        stream=STREAM,
        job=1,
        path=f"file-{attempt}",
        parquet_id=UUID(int=1000 + attempt),
        file_size=500,
        footer_length=100,
        record_count=end - start,
        min_timestamp=3,
        max_timestamp=9,
        start=start,
        end=end,
        row_groups=(RowGroup(4, 100, end - start, start, 90, 3, 9, end - 1),),
        columns=(),
        split_offsets=(4,),
    )


def a_compaction(entries: list[Versioned[IndexEntry]], *, table: bool = True) -> Compaction:
    inputs = tuple(map(Input.of, entries))
    return Compaction(
        "orders", UUID(int=9), 0, entries[0].value.start, entries[-1].value.end, inputs, table=table
    )


# --- every pair

ENTRIES = [Versioned(wal_entry(number), 50 + number) for number in range(3)]
LAST = ENTRIES[-1]
FILE = a_file(1, 0, 3)
PLAN = a_compaction(ENTRIES)
CREATED = Job(8, JobState.CREATED, compaction=PLAN)
WRITTEN = Job(8, JobState.PARQUET_WRITTEN, compaction=replace(PLAN, written=FILE.to_json()))
CARRIED = [Versioned(carried_entry(number), 50 + number) for number in range(3)]
PACK_ID = UUID(int=77)
PACK = a_packing(CARRIED, PACK_ID)
PACKED = Job(8, JobState.PACKED, packing=PACK)
MERGED = PACK.merged
JOBS = {
    JobState.DONE: Job(7),
    JobState.CREATED: CREATED,
    JobState.PARQUET_WRITTEN: WRITTEN,
    JobState.ICEBERG_COMMITTED: WRITTEN.moved(JobState.ICEBERG_COMMITTED),
    JobState.INDEX_SWAPPED: WRITTEN.moved(JobState.INDEX_SWAPPED),
    JobState.PACKED: PACKED,
    JobState.PACK_SWAPPED: PACKED.moved(JobState.PACK_SWAPPED),
    JobState.RETAIN: Job(8, JobState.RETAIN, threshold=2, need=2),
    JobState.RAISED: Job(8, JobState.RAISED, threshold=2, need=2),
}
DONE = Job(8)
RETAINED = Job(8, threshold=2, need=2)
SWAPPED = swapped_entry(WRITTEN.compacted, LAST.value)
PUT_ENTRY = Put(keys.index_entry(STREAM, 3, 30), SWAPPED.encode(), LAST.version)
DELETE_TWO = [*removal(STREAM, ENTRIES[0].value), *removal(STREAM, ENTRIES[1].value)]
REPLACED = JobStep(replaced(STREAM, PLAN), DONE)

PUT_MERGED = Put(keys.index_entry(STREAM, 3, 30), MERGED.encode(), CARRIED[-1].version)
UNPACKED = JobStep([inside(STREAM, PACK), dereference(STREAM, PACK)], DONE)
FORGOTTEN = JobStep([dereference(STREAM, PACK)], forget=True)

Outcomes = list[tuple[Event, JobStep | type[Exception]]]

# What is seen, and what is done then. A pair that is not here is illegal.
TABLE: dict[tuple[JobState, type[Event]], Outcomes] = {
    (JobState.DONE, Planned): [(Planned(PLAN), JobStep(following=CREATED))],
    (JobState.DONE, StartPlanned): [
        (StartPlanned(2, 2), JobStep(following=Job(8, JobState.RETAIN, threshold=2, need=2)))
    ],
    (JobState.DONE, Packed): [(Packed(PACK), JobStep(following=PACKED))],
    (JobState.DONE, CaughtUp): [(CaughtUp(), JobStep(following=Job(7)))],
    (JobState.DONE, NumbersSpent): [
        (NumbersSpent(9), JobStep(following=Job(9))),
        (NumbersSpent(5), JobStep(following=Job(7))),
    ],
    (JobState.DONE, StreamSwept): [(StreamSwept(), JobStep(forget=True))],
    (JobState.CREATED, FileWritten): [(FileWritten(FILE), JobStep(following=WRITTEN))],
    (JobState.CREATED, Abandoned): [(Abandoned(), JobStep(following=DONE))],
    (JobState.CREATED, StreamSwept): [(StreamSwept(), JobStep(forget=True))],
    (JobState.PARQUET_WRITTEN, InTable): [
        (InTable(), JobStep(following=WRITTEN.moved(JobState.ICEBERG_COMMITTED)))
    ],
    (JobState.PARQUET_WRITTEN, WithoutTable): [
        (
            WithoutTable(),
            JobStep(
                following=replace(
                    WRITTEN.moved(JobState.ICEBERG_COMMITTED), left_table=LeftTable(8, merged=False)
                )
            ),
        )
    ],
    (JobState.PARQUET_WRITTEN, StreamGone): [(StreamGone(), REPLACED)],
    (JobState.PARQUET_WRITTEN, StreamSwept): [(StreamSwept(), JobStep())],
    (JobState.ICEBERG_COMMITTED, LastInputSeen): [
        (LastInputSeen(LAST), JobStep(write=[PUT_ENTRY])),
        (LastInputSeen(LAST, certain=True), JobStep(write=[PUT_ENTRY])),
        (
            LastInputSeen(Versioned(SWAPPED, 90)),
            JobStep(following=WRITTEN.moved(JobState.INDEX_SWAPPED)),
        ),
        (LastInputSeen(Versioned(LAST.value, 90)), JobStep(unclear=True)),
        (LastInputSeen(None), JobStep(unclear=True)),
        (LastInputSeen(Versioned(LAST.value, 90), certain=True), SwapImpossible),
        (LastInputSeen(None, certain=True), SwapImpossible),
    ],
    (JobState.ICEBERG_COMMITTED, StreamGone): [(StreamGone(), REPLACED)],
    (JobState.ICEBERG_COMMITTED, StreamSwept): [(StreamSwept(), JobStep())],
    (JobState.INDEX_SWAPPED, Resumed): [(Resumed(), REPLACED)],
    (JobState.INDEX_SWAPPED, StreamGone): [(StreamGone(), REPLACED)],
    (JobState.INDEX_SWAPPED, StreamSwept): [(StreamSwept(), JobStep())],
    (JobState.PACKED, LastInputSeen): [
        (LastInputSeen(CARRIED[-1]), JobStep(write=[PUT_MERGED])),
        (LastInputSeen(Versioned(MERGED, 90)), JobStep(following=PACKED.moved(JobState.PACK_SWAPPED))),
        (LastInputSeen(Versioned(CARRIED[-1].value, 90)), JobStep(unclear=True)),
        (LastInputSeen(None), JobStep(unclear=True)),
        (LastInputSeen(Versioned(CARRIED[-1].value, 90), certain=True), SwapImpossible),
        (LastInputSeen(None, certain=True), SwapImpossible),
    ],
    (JobState.PACKED, StreamGone): [(StreamGone(), UNPACKED)],
    (JobState.PACKED, StreamSwept): [(StreamSwept(), FORGOTTEN)],
    (JobState.PACK_SWAPPED, Resumed): [(Resumed(), JobStep([inside(STREAM, PACK)], DONE))],
    (JobState.PACK_SWAPPED, StreamGone): [(StreamGone(), UNPACKED)],
    (JobState.PACK_SWAPPED, StreamSwept): [(StreamSwept(), FORGOTTEN)],
    (JobState.RETAIN, StartSeen): [
        (StartSeen(Versioned(1, 60)), JobStep(write=[put_start(STREAM, 2, 60)])),
        (StartSeen(Versioned(2, 61)), JobStep(following=Job(8, JobState.RAISED, threshold=2, need=2))),
        (StartSeen(Versioned(3, 62)), JobStep(following=Job(8, JobState.RAISED, threshold=2, need=2))),
    ],
    (JobState.RETAIN, StreamGone): [(StreamGone(), JobStep(following=RETAINED))],
    (JobState.RETAIN, StreamSwept): [(StreamSwept(), JobStep(forget=True))],
    (JobState.RAISED, EntriesSeen): [
        (EntriesSeen(ENTRIES, 100), JobStep(DELETE_TWO, RETAINED)),
        (EntriesSeen(ENTRIES[2:], 100), JobStep([], RETAINED)),
        (EntriesSeen([], 100), JobStep([], RETAINED)),
        (EntriesSeen(ENTRIES, 1), JobStep(DELETE_TWO[:2])),
        (EntriesSeen(ENTRIES, 2), JobStep(DELETE_TWO)),
    ],
    (JobState.RAISED, StreamGone): [(StreamGone(), JobStep(following=RETAINED))],
    (JobState.RAISED, StreamSwept): [(StreamSwept(), JobStep(forget=True))],
}
SAMPLES: dict[type[Event], Event] = {kind: found[0][0] for (_, kind), found in TABLE.items()}
PAIRS = list(product(JobState, get_args(Event)))


def test_there_is_a_sample_of_every_event_and_a_job_in_every_state() -> None:
    assert set(SAMPLES) == set(get_args(Event))
    assert set(JOBS) == set(JobState)
    assert {state: job.state for state, job in JOBS.items()} == {state: state for state in JobState}


@pytest.mark.parametrize(("state", "kind"), PAIRS, ids=lambda value: getattr(value, "__name__", None))
def test_every_pair_of_state_and_event(state: JobState, kind: type[Event]) -> None:
    job = JOBS[state]
    if (state, kind) not in TABLE:
        with pytest.raises(IllegalEvent, match=f"^job {job.number} is {state.value}: {kind.__name__} is not"):
            advance(STREAM, job, SAMPLES[kind])
        return
    for event, expected in TABLE[state, kind]:
        if isinstance(expected, JobStep):
            found = advance(STREAM, job, event)
            assert replace(found, write=list(found.write)) == replace(expected, write=list(expected.write))
        else:
            with pytest.raises(expected, match=r"job 8 has no place for (file-1|0+4d)"):
                advance(STREAM, job, event)


LEFT = LeftTable(3, merged=True)


@pytest.mark.parametrize(("state", "kind"), TABLE, ids=lambda value: getattr(value, "__name__", None))
def test_that_a_stream_has_left_its_table_is_said_until_it_has_caught_up(
    state: JobState, kind: type[Event]
) -> None:
    """Whatever happens meanwhile, and of the first job that went on: later ones change nothing of it."""
    for event, expected in TABLE[state, kind]:
        if isinstance(expected, JobStep) and expected.following is not None:
            following = advance(STREAM, replace(JOBS[state], left_table=LEFT), event).following
            assert following is not None
            assert following.left_table == (None if kind is CaughtUp else LEFT)
            assert Job.decode(following.encode()) == following


def test_a_merge_that_goes_on_without_its_table_says_so() -> None:
    merged = a_compaction([Versioned(SWAPPED, 5)])
    job = replace(WRITTEN, compaction=replace(merged, written=FILE.to_json()))
    following = advance(STREAM, job, WithoutTable()).following
    assert following is not None
    assert following.left_table == LeftTable(8, merged=True)


def test_what_a_job_awaits_says_who_carries_it_on() -> None:
    assert {state.value: job.awaits for state, job in JOBS.items()} == {
        "DONE": Awaits.PLAN,
        "CREATED": Awaits.FILE,
        "PARQUET_WRITTEN": Awaits.TABLE,
        "ICEBERG_COMMITTED": Awaits.INDEX,
        "INDEX_SWAPPED": Awaits.INDEX,
        "PACKED": Awaits.PACK,
        "PACK_SWAPPED": Awaits.PACK,
        "RETAIN": Awaits.START,
        "RAISED": Awaits.START,
    }
    assert JOBS[JobState.ICEBERG_COMMITTED].snapshot_end == 3
    assert JOBS[JobState.PACKED].snapshot_end == 3
    assert JOBS[JobState.RETAIN].snapshot_end == 2


def test_a_job_names_the_object_that_it_packs_until_it_is_done() -> None:
    naming = {state for state, job in JOBS.items() if job.packs_into(PACK_ID)}
    assert naming == {JobState.PACKED, JobState.PACK_SWAPPED}
    assert not PACKED.packs_into(UUID(int=78))


def test_a_pack_whose_entry_cannot_be_read_swaps_nothing() -> None:
    for entry in ("?", "", "AAAA"):
        job = replace(PACKED, packing=replace(PACK, entry=entry))
        with pytest.raises(ValueCorrupt):
            advance(STREAM, job, LastInputSeen(CARRIED[-1]))


def test_a_job_without_a_file_that_can_be_read_swaps_nothing() -> None:
    for written in (None, {"path": 5}):
        job = replace(JOBS[JobState.ICEBERG_COMMITTED], compaction=replace(PLAN, written=written))
        with pytest.raises(ValueCorrupt):
            advance(STREAM, job, LastInputSeen(LAST))


# --- any order of them


@dataclass
class Worker:
    """A process with what it last saw, which may be long past."""

    job: Versioned[Job] | None = None
    event: Event | None = None


@dataclass
class World:
    """One stream. Its first entries lie in objects of their own, the others carry their records; a table is
    only a set of jobs' files."""

    state: MemoryState = field(default_factory=MemoryState)
    workers: list[Worker] = field(default_factory=lambda: [Worker(), Worker(), Worker()])
    late: list[list[Operation]] = field(default_factory=list)
    attempts: int = 0
    packs: list[UUID] = field(default_factory=list)  # that were staged
    gone: bool = False  # the stream is deleted, not swept

    def __post_init__(self) -> None:
        first: list[Operation] = [put_job(STREAM, Job(), 0), put_start(STREAM, 0, 0)]
        for number in range(END):
            entry = wal_entry(number) if number < 2 else carried_entry(number)
            first.append(Put(keys.index_entry(STREAM, entry.end, entry.cumulative_size), entry.encode()))
            if entry.is_referenced:
                first.append(Put(keys.reference(entry.object_id, STREAM), b""))
        self.write(first)

    def write(self, operations: list[Operation]) -> list[bool]:
        return [outcome.applied for outcome in self.state.apply(0, operations, None, 0.0)]

    def records(self, prefix: str) -> Iterator[tuple[str, bytes, int]]:
        domain = self.state.domain(0, 0.0)
        for key in domain.keys:
            if key.startswith(prefix):
                record = domain.entries[key].record
                yield record.key, record.value, record.version

    def job(self) -> Versioned[Job]:
        found = list(self.records(keys.job(STREAM)))
        return Versioned(Job.decode(found[0][1]), found[0][2]) if found else Versioned(Job(), 0)

    def start(self) -> Versioned[int]:
        [(_, value, version)] = self.records(keys.start(STREAM))
        return Versioned(decode_start(value), version)

    def entries(self) -> list[Versioned[IndexEntry]]:
        stored = self.records(keys.offset_index(STREAM))
        return [Versioned(IndexEntry.decode(value), version) for _, value, version in stored]

    # --- what a process sees, and does

    def observe(self, worker: Worker, wish: int) -> None:
        """`wish` chooses among what may be begun, or given up."""
        job = worker.job = self.job()
        if self.gone and job.value.state not in (JobState.DONE, JobState.CREATED):
            worker.event = StreamGone()
        else:
            worker.event = self._seen(job.value, wish)

    def _seen(self, job: Job, wish: int) -> Event | None:
        match job.state:
            case JobState.DONE:
                return None if self.gone else self._plan(wish)
            case JobState.CREATED:
                self.attempts += 1
                compaction = job.compacted
                written = a_file(self.attempts, compaction.start, compaction.end)
                return Abandoned() if self.gone or wish % 3 == 0 else FileWritten(written)
            case JobState.PARQUET_WRITTEN:
                return WithoutTable() if wish % 2 else InTable()
            case JobState.ICEBERG_COMMITTED | JobState.PACKED:
                last = job.last_input
                at = keys.index_entry(STREAM, last.end, last.cumulative_size)
                found = [entry for entry in self.entries() if entry.value.end == last.end]
                assert not found or at == keys.index_entry(STREAM, last.end, found[0].value.cumulative_size)
                return LastInputSeen(found[0] if found else None)
            case JobState.INDEX_SWAPPED | JobState.PACK_SWAPPED:
                return Resumed()
            case JobState.RETAIN:
                return StartSeen(self.start())
            case JobState.RAISED:
                return EntriesSeen(self.entries(), 1 + wish)

    def _plan(self, wish: int) -> Event | None:
        start, entries = self.start().value, self.entries()
        live = [entry for entry in entries if entry.value.end > start]
        if wish == PACKS:
            carried = [entry for entry in live if entry.value.is_carried]
            return Packed(a_packing(carried, self._stage())) if carried else None
        if wish % 2:
            threshold = min(END, start + 1 + wish % 3)
            below = [entry.value.end for entry in live if entry.value.end <= threshold]
            return StartPlanned(threshold, max(below, default=0)) if threshold > start else None
        inputs = live[: 2 + wish % 3]
        return Planned(a_compaction(inputs)) if len(inputs) > 1 else None

    def _stage(self) -> UUID:
        self.packs.append(UUID(int=5000 + len(self.packs)))
        self.write([Put(keys.reference(self.packs[-1], STREAM), b"")])
        return self.packs[-1]

    def collect(self) -> None:
        """What a collector does for packs that came to nothing."""
        held = {entry.value.object_id for entry in self.entries()}
        for wal_id in self.packs:
            if wal_id not in held and not self.job().value.packs_into(wal_id):
                self.write([Delete(keys.reference(wal_id, STREAM))])

    def act(self, worker: Worker, fate: str) -> None:
        job, event = worker.job, worker.event
        worker.job = worker.event = None
        if job is None or event is None:
            return
        step = advance(STREAM, job.value, event)
        moves: list[Operation] = []
        if step.following is not None:
            moves.append(put_job(STREAM, step.following, job.version))
        for operations in (list(step.write), moves):
            if not operations:
                continue
            if fate == "lost":
                return  # never sent, as far as anybody knows
            if fate == "late":
                self.late.append(operations)
                return
            if fate == "twice":
                self.late.append(operations)
            applied = self.write(operations)[-1]
            if fate == "reply lost":
                if operations is moves and step.following is not None and applied:
                    assert is_moved(self.job().value, step.following), "it can be told that it was moved"
                return

    # --- the end

    def settle(self) -> None:
        """One process carries on until nothing is left to do."""
        worker = Worker()
        for _ in range(40):
            self.observe(worker, wish=100)
            if worker.job is not None and worker.job.value.state is JobState.DONE:
                return
            self.act(worker, "")
        raise AssertionError(f"{self.job()} goes on for ever")

    def sweep(self) -> None:
        """What the deletion of a stream does at its end."""
        for entry in self.entries():
            self.write(removal(STREAM, entry.value))
        found = self.job()
        step = advance(STREAM, found.value, StreamSwept())
        if step.forget:
            self.write([*step.write, Delete(keys.job(STREAM), found.version)])

    def check(self) -> None:
        start, entries = self.start().value, [entry.value for entry in self.entries()]
        reached = END
        for entry in reversed(entries):
            assert entry.end == reached, f"{entries} do not adjoin"
            reached = entry.start
        assert reached <= start, "records are gone that nobody deleted"
        assert all(entry.end > start for entry in entries), "what was deleted is still there"
        objects = [entry.object_id for entry in entries]
        assert len(set(objects)) == len(objects), "an object is referenced twice"
        self.check_references({entry.object_id for entry in entries if entry.is_referenced})

    def check_references(self, needed: set[UUID]) -> None:
        referenced = {keys.wal_id_of(key) for key, _, _ in self.records(keys.REFERENCES)}
        assert referenced == needed, "references are those of the entries"


PACKS = 4  # the wish for a pack
FATES = ("", "", "", "lost", "reply lost", "late", "twice")
actions = st.one_of(
    st.tuples(st.just("observe"), st.integers(0, 2), st.integers(0, 5)),
    st.tuples(st.just("act"), st.integers(0, 2), st.sampled_from(range(len(FATES)))),
    st.tuples(st.just("step"), st.integers(0, 2), st.integers(0, 5)),
    st.tuples(st.just("late"), st.integers(0, 9), st.just(0)),
    st.tuples(st.just("delete"), st.just(0), st.integers(0, 9)),
)


def play(world: World, action: str, which: int, how: int) -> None:
    match action:
        case "observe":
            world.observe(world.workers[which], how)
        case "act":
            world.act(world.workers[which], FATES[how])
        case "step":
            worker = Worker()
            world.observe(worker, how)
            world.act(worker, "")
        case "late" if world.late:
            world.write(world.late[which % len(world.late)])
        case "delete":
            world.gone = world.gone or how == 0


STEP = ("step", 0, 100)
RETAIN_MORE = [("step", 0, 1), STEP, STEP, STEP]
COMPACTED = [STEP, STEP, STEP, ("observe", 0, 0), STEP, ("act", 0, FATES.index("late")), STEP, STEP]
RAISED_LATE = [("step", 0, 1), ("observe", 0, 0), STEP, ("act", 0, FATES.index("late")), STEP, STEP]


@settings(max_examples=200, deadline=None)
@example([*RAISED_LATE, *RETAIN_MORE])  # a start that is raised by an older job, after all is done
@example([*COMPACTED, *RETAIN_MORE, *RETAIN_MORE])  # an entry that is swapped in after it has expired
@given(st.lists(actions, min_size=5, max_size=60))
def test_any_order_of_crashes_and_repeats_ends_well(script: list[tuple[str, int, int]]) -> None:
    world = World()
    for action in script:
        play(world, *action)
    for _ in range(2):
        world.settle()
        for worker in world.workers:  # those that slept wake up
            world.act(worker, "")
        for operations in world.late:  # and what was on its way arrives
            world.write(operations)
    world.settle()
    world.collect()
    if not world.gone:
        world.check()
        return
    world.sweep()
    world.collect()
    assert list(world.records(keys.job(STREAM))) == []
    world.check_references(set())


def test_the_script_above_reaches_every_state() -> None:
    world = World()
    seen = []
    for wish in (PACKS, 100, 100, 100, 100, 100, 100, 100, 100, 100, 1, 100, 100, 100):
        worker = Worker()
        world.observe(worker, wish)
        seen.append(world.job().value.state)
        world.act(worker, "")
    world.settle()
    assert set(seen) == set(JobState)
    world.check()
    assert EntryKind.PARQUET in {entry.value.kind for entry in world.entries()}
