"""Producer states against a naive model, and the two things beside them: snapshots and failed sequences."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.log.append.failed_sequences import FailedSequences
from dray.log.entries import BatchReference, IndexEntry, pack_batches
from dray.log.producer_state import (
    REMEMBERED_BATCHES,
    ProducerSnapshot,
    ProducerStates,
    RememberedBatch,
    next_sequence,
)
from dray.log.types import LogError, LogUnavailable, OutOfOrderSequence, ProducerFenced

EXPIRY_MS = 1000
LAST = 2**31 - 1


def reference(
    sequence: int, count: int = 1, epoch: int = 0, producer: int = 1, append_time_ms: int = -1
) -> BatchReference:
    attributes = 0 if append_time_ms == -1 else 0x08
    return BatchReference(0, 100, count, attributes, 0, max(0, append_time_ms), producer, epoch, sequence)


# --- the model: a list of everything appended, searched from its end


@dataclass
class NaiveProducer:
    """Every sequence number written out one by one."""

    epoch: int
    last_ms: int
    batches: list[tuple[list[int], int]] = field(default_factory=list)  # sequences, base offset

    def next_sequence(self) -> int:
        return (self.batches[-1][0][-1] + 1) % (LAST + 1)


@dataclass
class NaiveModel:
    producers: dict[int, NaiveProducer] = field(default_factory=dict)
    end: int = 0

    def append(self, batch: BatchReference, now_ms: int) -> int | type[LogError]:
        """The offset that is answered, or the error."""
        sequences = [(batch.base_sequence + place) % (LAST + 1) for place in range(batch.record_count)]
        known = self.producers.get(batch.producer_id)
        if known is not None and now_ms - known.last_ms > EXPIRY_MS:
            # Anything goes; but one that simply went on is still the same producer.
            if batch.producer_epoch != known.epoch or batch.base_sequence != known.next_sequence():
                known = None
        elif known is not None:
            if batch.producer_epoch < known.epoch:
                return ProducerFenced
            if batch.producer_epoch > known.epoch:
                if batch.base_sequence != 0:
                    return OutOfOrderSequence
                known = None
            else:
                for earlier, offset in known.batches[-REMEMBERED_BATCHES:]:
                    if earlier == sequences:
                        return offset
                if batch.base_sequence != known.next_sequence():
                    return OutOfOrderSequence
        if known is None:
            known = self.producers[batch.producer_id] = NaiveProducer(batch.producer_epoch, now_ms)
        known.last_ms = now_ms
        known.batches.append((sequences, self.end))
        self.end += batch.record_count
        return self.end - batch.record_count


@dataclass(frozen=True)
class Step:
    producer: int
    epoch_step: int
    # What is sent: the next one, one of the last few again, or some other.
    kind: str
    back: int
    count: int
    wait_ms: int


steps = st.builds(
    Step,
    producer=st.sampled_from((1, 2)),
    epoch_step=st.sampled_from((0, 0, 0, 0, 1, -1)),
    kind=st.sampled_from(("next", "next", "next", "again", "other", "zero")),
    back=st.integers(1, 7),
    count=st.integers(1, 3),
    wait_ms=st.sampled_from((0, 1, 1, 1, EXPIRY_MS, EXPIRY_MS + 1)),
)


def _batch_for(step: Step, sent: list[BatchReference], start: int) -> BatchReference:
    mine = [batch for batch in sent if batch.producer_id == step.producer]
    epoch = max(0, (mine[-1].producer_epoch if mine else 0) + step.epoch_step)
    if not mine:
        return reference(start, step.count, epoch, step.producer)
    if step.kind == "again":
        again = mine[-min(step.back, len(mine))]
        return reference(again.base_sequence, again.record_count, epoch, step.producer)
    following = next_sequence(mine[-1].base_sequence, mine[-1].record_count)
    sequence = {"zero": 0, "other": next_sequence(following, step.back - 4)}.get(step.kind, following)
    return reference(sequence, step.count, epoch, step.producer)


@settings(max_examples=150)
@given(st.lists(steps, max_size=30), st.sampled_from((0, 5, LAST - 3, LAST)), st.booleans())
def test_states_answer_as_the_model_does(plan: list[Step], start: int, forked: bool) -> None:
    states, model = ProducerStates(EXPIRY_MS), NaiveModel()
    sent: list[BatchReference] = []
    now_ms = 0
    for step in plan:
        now_ms += step.wait_ms
        batch = _batch_for(step, sent, start)
        before, offset = dict(states.items()), model.end
        expected = model.append(batch, now_ms)
        fork = states.fork() if forked else states
        if isinstance(expected, type):
            with pytest.raises(expected):
                fork.judge(batch, now_ms)
            continue
        remembered = fork.judge(batch, now_ms)
        if remembered is not None:
            assert remembered.base_offset == expected
            continue
        assert expected == offset
        fork.record(batch, offset, now_ms)
        if forked:
            assert dict(states.items()) == before, "a fork that is dropped leaves nothing behind"
            assert fork.join() is states
        sent.append(batch)
    for producer_id, known in model.producers.items():
        newest = states.get(producer_id)
        assert newest is not None
        assert (newest.epoch, newest.last_ms) == (known.epoch, known.last_ms)
        assert 1 <= len(newest.batches) <= REMEMBERED_BATCHES
        assert newest.batches[-1].base_offset == known.batches[-1][1]


@given(st.lists(steps, max_size=25), st.integers(0, 25), st.sampled_from((0, LAST - 3)))
def test_a_fold_above_a_snapshot_gives_what_a_fold_of_everything_gives(
    plan: list[Step], cut: int, start: int
) -> None:
    """Wherever the snapshot stands; and it survives being stored."""
    states, model = ProducerStates(EXPIRY_MS), NaiveModel()
    sent: list[BatchReference] = []
    entries: list[IndexEntry] = []
    for number, step in enumerate(plan):
        batch = _batch_for(step, sent, start)
        offset = model.end
        if model.append(batch, number) == offset and model.end > offset:
            sent.append(batch)
            entries.append(_entry(offset, [batch], number))
    for entry in entries:
        states.fold(entry)
    below = ProducerStates(EXPIRY_MS)
    for entry in entries[:cut]:
        below.fold(entry)
    upto = entries[cut - 1].end if 0 < cut <= len(entries) else 0
    stored = ProducerSnapshot(upto, below).encode()
    above = ProducerSnapshot.decode(stored, EXPIRY_MS)
    assert above.upto == upto
    for entry in entries[cut:]:
        above.states.fold(entry)
    assert dict(above.states.items()) == dict(states.items())


def _entry(start: int, batches: list[BatchReference], created_ms: int) -> IndexEntry:
    end = start + sum(batch.record_count for batch in batches)
    return IndexEntry(start, end, 0, created_ms, 0, 0, 0, 0, UUID(int=start), "path", pack_batches(batches))


# --- one rule at a time


def test_five_are_remembered_and_no_more() -> None:
    states = ProducerStates(EXPIRY_MS)
    for sequence in range(6):
        assert states.judge(reference(sequence), 0) is None
        states.record(reference(sequence), sequence * 10, 0)
    for sequence in range(1, 6):
        remembered = states.judge(reference(sequence), 0)
        assert remembered is not None
        assert remembered.base_offset == sequence * 10
    with pytest.raises(OutOfOrderSequence, match="sent sequence 0, but 6 is next"):
        states.judge(reference(0), 0)


def test_a_duplicate_is_the_same_from_its_first_sequence_to_its_last() -> None:
    states = ProducerStates(EXPIRY_MS)
    states.record(reference(0, count=3, append_time_ms=77), 100, 0)
    assert states.judge(reference(0, count=3), 0) == RememberedBatch(0, 2, 100, 77)
    for other in (reference(0, count=2), reference(1, count=2), reference(0, count=4)):
        with pytest.raises(OutOfOrderSequence):
            states.judge(other, 0)


def test_sequences_wrap() -> None:
    states = ProducerStates(EXPIRY_MS)
    states.record(reference(LAST - 1, count=3), 0, 0)
    assert states.get(1).batches[-1].last_sequence == 0  # type: ignore[union-attr]
    assert states.judge(reference(1), 0) is None
    assert states.judge(reference(LAST - 1, count=3), 0) is not None
    with pytest.raises(OutOfOrderSequence):
        states.judge(reference(2), 0)


def test_a_producer_expires_at_its_own_pace() -> None:
    states = ProducerStates(EXPIRY_MS)
    states.record(reference(0, producer=1), 0, 0)
    states.record(reference(0, producer=2), 1, EXPIRY_MS)
    assert states.knows(1, EXPIRY_MS)
    assert not states.knows(1, EXPIRY_MS + 1)
    assert states.judge(reference(55, producer=1), EXPIRY_MS + 1) is None
    with pytest.raises(OutOfOrderSequence):
        states.judge(reference(55, producer=1), EXPIRY_MS)
    assert [producer for producer, _ in states.without_expired(EXPIRY_MS + 1).items()] == [2]


def test_a_new_epoch_forgets_the_batches_of_the_old_one() -> None:
    states = ProducerStates(EXPIRY_MS)
    states.record(reference(0, epoch=0), 0, 0)
    states.record(reference(0, epoch=1), 1, 0)
    remembered = states.judge(reference(0, epoch=1), 0)
    assert remembered is not None
    assert remembered.base_offset == 1
    with pytest.raises(ProducerFenced):
        states.judge(reference(1, epoch=0), 0)


# --- batches behind one that failed


def test_what_comes_behind_a_failed_batch_waits_for_it() -> None:
    failed = FailedSequences()
    failed.note(1, reference(4), 0)
    failed.note(1, reference(2), 0)  # objects fail in any order: the earliest counts
    failed.note(1, reference(6), 0)
    for sequence in (0, 2):
        failed.check(1, reference(sequence), 0)
    for sequence in (3, 4, 100):
        with pytest.raises(LogUnavailable, match="2 failed before it"):
            failed.check(1, reference(sequence), 0)


def test_a_failure_is_of_one_stream_one_producer_and_one_epoch() -> None:
    failed = FailedSequences()
    failed.note(1, reference(2, epoch=1), 0)
    failed.check(2, reference(3, epoch=1), 0)
    failed.check(1, reference(3, epoch=1, producer=2), 0)
    failed.check(1, reference(3, epoch=2), 0)
    failed.note(1, reference(0, epoch=0), 0)  # a zombie's
    with pytest.raises(LogUnavailable):
        failed.check(1, reference(3, epoch=1), 0)
    failed.note(1, reference(7, epoch=2), 0)
    with pytest.raises(ProducerFenced):  # nothing of the newer epoch is in the log, but it has begun
        failed.check(1, reference(3, epoch=1), 0)
    with pytest.raises(LogUnavailable):
        failed.check(1, reference(8, epoch=2), 0)


def test_failed_sequences_wrap() -> None:
    failed = FailedSequences()
    failed.note(1, reference(LAST), 0)
    failed.check(1, reference(LAST - 1), 0)
    with pytest.raises(LogUnavailable):
        failed.check(1, reference(0), 0)


def test_failures_of_plain_producers_are_none_and_there_is_a_limit() -> None:
    failed = FailedSequences(limit=2)
    failed.note(1, reference(-1, epoch=-1, producer=-1), 0)
    for producer in (1, 2, 3):
        failed.note(1, reference(0, producer=producer), 0)
    failed.check(1, reference(1, producer=1), 0)  # forgotten
    for producer in (2, 3):
        with pytest.raises(LogUnavailable):
            failed.check(1, reference(1, producer=producer), 0)


def test_a_failure_is_remembered_for_as_long_as_a_client_may_try_again() -> None:
    failed = FailedSequences()
    minute = 60_000
    failed.note(1, reference(2), 0)
    failed.note(1, reference(4), 5 * minute)  # it is still being tried
    with pytest.raises(LogUnavailable, match="2 failed before it"):
        failed.check(1, reference(3), 15 * minute)
    failed.check(1, reference(3), 15 * minute + 1)
    failed.note(1, reference(9), 16 * minute)
    failed.check(1, reference(3), 16 * minute)
    with pytest.raises(LogUnavailable, match="9 failed before it"):
        failed.check(1, reference(10), 16 * minute)


def test_a_gap_is_that_of_a_failed_batch_while_that_one_is_next() -> None:
    failed = FailedSequences()
    for sequence in (4, 2, 6):
        failed.note(1, reference(sequence, epoch=1), 0)
    for expected in (2, 4, 6):
        assert failed.gap(1, reference(8, epoch=1), expected, 0) is not None
    for expected in (1, 7):  # another one is missing, or all that failed came again
        assert failed.gap(1, reference(8, epoch=1), expected, 0) is None
    assert failed.gap(1, reference(3, epoch=1), 4, 0) is None, "it comes before what is next: no gap"
    assert failed.gap(1, reference(8, epoch=2), 2, 0) is None
    assert failed.gap(1, reference(8, epoch=1, producer=2), 2, 0) is None
    assert failed.gap(2, reference(8, epoch=1), 2, 0) is None


def test_what_is_expected_of_an_epoch_that_begins_is_its_first() -> None:
    states = ProducerStates(EXPIRY_MS)
    assert states.expected(reference(3)) is None
    states.record(reference(0, count=3, epoch=1), 0, 0)
    assert states.expected(reference(9, epoch=1)) == 3
    assert states.expected(reference(9, epoch=2)) == 0


def test_a_gap_is_looked_at_for_so_long_from_when_it_was_first_seen() -> None:
    failed = FailedSequences(limit=2)
    assert failed.young_gap(1, reference(7), 5, 0, 100) is not None
    assert failed.young_gap(1, reference(6), 5, 99, 100) is not None
    assert failed.young_gap(1, reference(6), 5, 100, 100) is None
    assert failed.young_gap(1, reference(8), 7, 100, 100) is not None, "that is another gap"
    assert failed.young_gap(1, reference(8, epoch=1), 7, 250, 100) is not None, "and so is this"
    assert failed.young_gap(1, reference(4), 7, 0, 100) is None, "an older sequence is no gap"
    assert failed.young_gap(1, reference(8, producer=2), 7, 250, 100) is not None
    assert failed.young_gap(1, reference(8, producer=3), 7, 250, 100) is not None
    assert failed.young_gap(1, reference(8, epoch=1), 7, 400, 100) is not None, "it was forgotten"
