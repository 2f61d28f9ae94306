"""A linearizability-style check of what clients saw, in the manner of Jepsen's Kafka workload.

It knows nothing of the system: only who asked what when, and what was answered. Writes name values that are
unique; polls name offsets and values. From that alone it finds what a log must never do. Times are those of
the clients: an operation happened somewhere between being sent and being answered.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

Partition = Hashable


class WriteOutcome(Enum):
    DONE = "done"
    FAILED = "failed"  # certainly not, and never
    UNKNOWN = "unknown"


class Write(NamedTuple):
    client: str
    partition: Partition
    values: tuple[Hashable, ...]
    sent: float
    answered: float
    outcome: WriteOutcome
    offset: int = -1  # of the first value, where it is done


class Poll(NamedTuple):
    client: str
    partition: Partition
    position: int  # the first offset that was asked for
    records: tuple[tuple[int, Hashable], ...]
    sent: float
    answered: float
    goes_on: bool  # where this client's last poll of the partition ended


class EndAsked(NamedTuple):
    """ListOffsets of the latest offset."""

    client: str
    partition: Partition
    offset: int
    sent: float
    answered: float


class StartRaised(NamedTuple):
    """Records below it may be gone from then on."""

    partition: Partition
    offset: int
    sent: float


class AcknowledgedDeletion(NamedTuple):
    """Acknowledged: no poll that is sent later than `gone_from` finds records below the offset."""

    partition: Partition
    offset: int
    gone_from: float


@dataclass(slots=True)
class History:
    writes: list[Write] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    ends: list[EndAsked] = field(default_factory=list)
    starts: list[StartRaised] = field(default_factory=list)
    deleted: list[AcknowledgedDeletion] = field(default_factory=list)


class Anomaly(NamedTuple):
    kind: str
    partition: Partition
    detail: str


LOST_WRITE = "lost write"
ABORTED_READ = "aborted read"
INCONSISTENT_OFFSET = "inconsistent offset"
DUPLICATE = "duplicate"
SKIPPING_POLL = "poll that skips"
NON_MONOTONIC_POLL = "non-monotonic poll"
NON_MONOTONIC_WRITE = "non-monotonic write"
STALE_READ = "stale read"
DELETED_READ = "stale read of what was deleted"
FUTURE_READ = "read before it was written"
END_WENT_BACK = "end of the log that went back"


def anomalies(history: History) -> list[Anomaly]:
    """Everything that cannot have come from a log that keeps its promises."""
    placed, found = _place(history)
    start = _starts(history.starts)
    found += _duplicates(placed)
    found += _unwritten(history, placed)
    found += _polls(history.polls, placed)
    found += _lost(history, start)
    found += _stale(history, start)
    found += _deleted(history)
    found += _writes_in_order(history.writes)
    found += _ends(history)
    return found


Placed = Mapping[Partition, Mapping[int, Hashable]]


def _place(history: History) -> tuple[Placed, list[Anomaly]]:
    """The value at each place, by everybody's word. Two words about one offset are one too many."""
    placed: dict[Partition, dict[int, Hashable]] = defaultdict(dict)
    found: list[Anomaly] = []

    def put(partition: Partition, offset: int, value: Hashable) -> None:
        known = placed[partition].setdefault(offset, value)
        if known != value:
            found.append(Anomaly(INCONSISTENT_OFFSET, partition, f"{offset} holds {known!r} and {value!r}"))

    for write in history.writes:
        if write.outcome is WriteOutcome.DONE:
            for place, value in enumerate(write.values):
                put(write.partition, write.offset + place, value)
    for poll in history.polls:
        for offset, value in poll.records:
            put(poll.partition, offset, value)
    return placed, found


def _duplicates(placed: Placed) -> Iterable[Anomaly]:
    for partition, records in placed.items():
        seen: dict[Hashable, int] = {}
        for offset in sorted(records):
            value = records[offset]
            if value in seen:
                yield Anomaly(DUPLICATE, partition, f"{value!r} is at {seen[value]} and at {offset}")
            seen.setdefault(value, offset)


def _unwritten(history: History, placed: Placed) -> Iterable[Anomaly]:
    """Values that were read though their write failed, or before they were sent."""
    outcome: dict[tuple[Partition, Hashable], WriteOutcome] = {}
    sent: dict[tuple[Partition, Hashable], float] = {}
    for write in history.writes:
        for value in write.values:
            key = (write.partition, value)
            # A write that was tried again failed only if every attempt did.
            if outcome.get(key) in (None, WriteOutcome.FAILED):
                outcome[key] = write.outcome
            sent[key] = min(write.sent, sent.get(key, write.sent))
    for partition, records in placed.items():
        for offset, value in records.items():
            if outcome.get((partition, value)) is WriteOutcome.FAILED:
                yield Anomaly(ABORTED_READ, partition, f"{value!r} failed, and is at {offset}")
    for poll in history.polls:
        for offset, value in poll.records:
            if sent.get((poll.partition, value), float("inf")) > poll.answered:
                yield Anomaly(FUTURE_READ, poll.partition, f"{value!r} at {offset}")


def _polls(polls: Sequence[Poll], placed: Placed) -> Iterable[Anomaly]:
    """Within a poll and from poll to poll: never back, and never over a record that is known to be there."""
    position: dict[tuple[str, Partition], int] = {}
    known = {partition: sorted(records) for partition, records in placed.items()}
    for poll in polls:
        key = (poll.client, poll.partition)
        expected = position.get(key, poll.position) if poll.goes_on else poll.position
        for offset, _ in poll.records:
            if offset < expected:
                yield Anomaly(NON_MONOTONIC_POLL, poll.partition, f"{poll.client} at {expected} got {offset}")
            elif offset > expected:
                offsets = known[poll.partition]
                skipped = offsets[bisect_right(offsets, expected - 1)]
                if skipped < offset:
                    yield Anomaly(
                        SKIPPING_POLL,
                        poll.partition,
                        f"{poll.client} at {expected} got {offset}, not {skipped}",
                    )
            expected = offset + 1
        position[key] = expected


def _starts(raised: Sequence[StartRaised]) -> Mapping[Partition, list[StartRaised]]:
    by_partition: dict[Partition, list[StartRaised]] = defaultdict(list)
    for one in raised:
        by_partition[one.partition].append(one)
    return by_partition


def _lost(history: History, starts: Mapping[Partition, list[StartRaised]]) -> Iterable[Anomaly]:
    """Acknowledged, and not there for a poll that read past it."""
    acknowledged: dict[Partition, list[tuple[int, float, Hashable]]] = defaultdict(list)
    for write in history.writes:
        if write.outcome is WriteOutcome.DONE:
            acknowledged[write.partition] += [
                (write.offset + place, write.answered, value) for place, value in enumerate(write.values)
            ]
    offsets: dict[Partition, list[int]] = {}
    for partition, records in acknowledged.items():
        records.sort(key=lambda record: record[0])
        offsets[partition] = [offset for offset, _, _ in records]
    for poll in history.polls:
        if not poll.records:
            continue
        first, last = poll.records[0][0], poll.records[-1][0]
        got = dict(poll.records)
        order = offsets.get(poll.partition, [])
        low, high = bisect_right(order, poll.position - 1), bisect_right(order, last)
        for offset, _, value in acknowledged.get(poll.partition, [])[low:high]:
            if offset in got or (offset < first and _may_be_gone(starts, poll, offset)):
                continue
            yield Anomaly(LOST_WRITE, poll.partition, f"{value!r} at {offset} is not there for {poll.client}")


def _may_be_gone(starts: Mapping[Partition, list[StartRaised]], poll: Poll, offset: int) -> bool:
    return any(
        start.offset > offset and start.sent <= poll.answered for start in starts.get(poll.partition, [])
    )


def _stale(history: History, starts: Mapping[Partition, list[StartRaised]]) -> Iterable[Anomaly]:
    """Polls that found nothing, though what they asked for was acknowledged before they were sent."""
    ends = _acknowledged_ends(history.writes)
    for poll in history.polls:
        if poll.records:
            continue
        end = _end_before(ends.get(poll.partition, []), poll.sent)
        if end > poll.position and not _may_be_gone(starts, poll, poll.position):
            yield Anomaly(
                STALE_READ, poll.partition, f"{poll.client} found nothing at {poll.position}, below {end}"
            )


def _deleted(history: History) -> Iterable[Anomaly]:
    """Records below a start that was acknowledged long enough before they were asked for."""
    for poll in history.polls:
        for deleted in history.deleted:
            if deleted.partition != poll.partition or deleted.gone_from >= poll.sent:
                continue
            found = [offset for offset, _ in poll.records if offset < deleted.offset]
            if found:
                yield Anomaly(
                    DELETED_READ,
                    poll.partition,
                    f"{poll.client} got {found[0]}, though all below {deleted.offset} was deleted",
                )


Ends = list[tuple[float, int]]  # by time of the answer: the greatest end acknowledged by then


def _acknowledged_ends(writes: Sequence[Write]) -> Mapping[Partition, Ends]:
    ends: dict[Partition, Ends] = defaultdict(list)
    for write in sorted(writes, key=lambda write: write.answered):
        if write.outcome is WriteOutcome.DONE:
            known = ends[write.partition]
            end = write.offset + len(write.values)
            known.append((write.answered, max(end, known[-1][1]) if known else end))
    return ends


def _end_before(ends: Ends, moment: float) -> int:
    """The end that was acknowledged before a moment."""
    place = bisect_right(ends, (moment, -1))
    return ends[place - 1][1] if place else 0


def _writes_in_order(writes: Sequence[Write]) -> Iterable[Anomaly]:
    """A write that a client sends after an acknowledgement comes after the acknowledged one."""
    by_client: dict[tuple[str, Partition], list[Write]] = defaultdict(list)
    first: dict[tuple[Hashable, ...], float] = {}  # what is sent again may be there since the first time
    for write in writes:
        first[write.values] = min(write.sent, first.get(write.values, write.sent))
        if write.outcome is WriteOutcome.DONE:
            by_client[write.client, write.partition].append(write)
    for (client, partition), own in by_client.items():
        ends = _acknowledged_ends(own)[partition]
        for write in own:
            if write.offset < (end := _end_before(ends, first[write.values])):
                yield Anomaly(
                    NON_MONOTONIC_WRITE, partition, f"{client} wrote at {write.offset}, after {end} was known"
                )


def _ends(history: History) -> Iterable[Anomaly]:
    """The end in an answer covers what was acknowledged, and never goes back from one answer to the next."""
    acknowledged = _acknowledged_ends(history.writes)
    answered: dict[Partition, Ends] = defaultdict(list)
    for asked in sorted(history.ends, key=lambda asked: asked.answered):
        known = answered[asked.partition]
        known.append((asked.answered, max(asked.offset, known[-1][1]) if known else asked.offset))
    for asked in history.ends:
        least = _end_before(acknowledged.get(asked.partition, []), asked.sent)
        before = _end_before(answered[asked.partition], asked.sent)
        if asked.offset < least:
            yield Anomaly(
                STALE_READ, asked.partition, f"{asked.client} was told the end {asked.offset}, below {least}"
            )
        elif asked.offset < before:
            yield Anomaly(
                END_WENT_BACK, asked.partition, f"{asked.client} was told {asked.offset}, after {before}"
            )
