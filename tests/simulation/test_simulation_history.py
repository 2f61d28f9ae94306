"""Each anomaly that the check of histories knows, planted and found; and nothing found where nothing is."""

from __future__ import annotations

import pytest

from dray_simulation.checks import history
from dray_simulation.checks.group_truth import CommittedOffsets, Ownership
from dray_simulation.checks.history import (
    AcknowledgedDeletion,
    Anomaly,
    EndAsked,
    History,
    Poll,
    StartRaised,
    Write,
    WriteOutcome,
    anomalies,
)
from dray_simulation.checks.log_truth import Violation


def write(
    offset: int,
    *values: str,
    sent: float = 0.0,
    answered: float = 1.0,
    outcome: WriteOutcome = WriteOutcome.DONE,
    client: str = "writer",
) -> Write:
    return Write(client, "t", values, sent, answered, outcome, offset)


def poll(
    position: int,
    *records: tuple[int, str],
    sent: float = 5.0,
    answered: float = 6.0,
    goes_on: bool = False,
    client: str = "reader",
) -> Poll:
    return Poll(client, "t", position, records, sent, answered, goes_on)


GOOD = History(
    writes=[
        write(0, "a", "b"),
        write(2, "c", sent=2, answered=3),
        write(-1, "d", outcome=WriteOutcome.FAILED),
        write(-1, "e", outcome=WriteOutcome.UNKNOWN),
        write(3, "e", sent=2, answered=9),
    ],
    polls=[
        poll(0, (0, "a"), (1, "b")),
        poll(2, (2, "c"), (3, "e"), goes_on=True, sent=7, answered=8),
        poll(4, sent=8, answered=9),
    ],
    ends=[EndAsked("reader", "t", 3, 4, 5), EndAsked("reader", "t", 4, 6, 7)],
)


def test_nothing_is_found_where_nothing_is() -> None:
    assert anomalies(GOOD) == []


def test_records_below_a_raised_start_are_not_lost() -> None:
    found = anomalies(
        History(
            writes=[write(0, "a"), write(1, "b", sent=2, answered=3)],
            polls=[poll(0), poll(1, (1, "b"), goes_on=False)],
            starts=[StartRaised("t", 1, 4.0)],
        )
    )
    assert found == []


def test_records_may_be_read_until_the_bound_has_passed_and_those_above_the_start_ever_after() -> None:
    found = anomalies(
        History(
            writes=[write(0, "a"), write(1, "b", sent=2, answered=3)],
            polls=[poll(0, (0, "a"), (1, "b")), poll(1, (1, "b"), sent=9, answered=10)],
            starts=[StartRaised("t", 1, 4.0)],
            deleted=[AcknowledgedDeletion("t", 1, 5.0), AcknowledgedDeletion("other", 2, 0.0)],
        )
    )
    assert found == []


PLANTED = {
    history.DELETED_READ: History(
        writes=[write(0, "a")],
        polls=[poll(0, (0, "a"))],
        starts=[StartRaised("t", 1, 2.0)],
        deleted=[AcknowledgedDeletion("t", 1, 4.9)],
    ),
    history.LOST_WRITE: History(
        writes=[write(0, "a"), write(1, "b", sent=2, answered=3), write(2, "c", sent=2, answered=3)],
        polls=[poll(0, (0, "a"), (2, "c"))],
    ),
    history.ABORTED_READ: History(
        writes=[write(-1, "a", outcome=WriteOutcome.FAILED)], polls=[poll(0, (0, "a"))]
    ),
    history.INCONSISTENT_OFFSET: History(
        writes=[write(0, "a"), write(-1, "b", outcome=WriteOutcome.UNKNOWN)], polls=[poll(0, (0, "b"))]
    ),
    history.DUPLICATE: History(writes=[write(0, "a")], polls=[poll(0, (0, "a"), (1, "a"))]),
    history.SKIPPING_POLL: History(
        writes=[write(0, "a"), write(1, "b", client="x"), write(2, "c", client="y")],
        polls=[poll(0, (0, "a")), poll(1, (2, "c"), goes_on=True)],
    ),
    history.NON_MONOTONIC_POLL: History(
        writes=[write(0, "a"), write(1, "b", client="x")],
        polls=[poll(0, (0, "a"), (1, "b")), poll(2, (1, "b"), goes_on=True)],
    ),
    history.NON_MONOTONIC_WRITE: History(writes=[write(4, "b"), write(0, "a", sent=2, answered=3)]),
    history.STALE_READ: History(writes=[write(0, "a")], polls=[poll(0)]),
    history.FUTURE_READ: History(writes=[write(0, "a", sent=8, answered=9)], polls=[poll(0, (0, "a"))]),
    history.END_WENT_BACK: History(ends=[EndAsked("reader", "t", 5, 1, 2), EndAsked("other", "t", 4, 3, 4)]),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_what_is_planted_is_found(kind: str) -> None:
    assert kind in {anomaly.kind for anomaly in anomalies(PLANTED[kind])}


def test_every_anomaly_is_planted() -> None:
    kinds = {
        value
        for name, value in vars(history).items()
        if name.isupper() and isinstance(value, str) and not name.startswith("_")
    }
    assert set(PLANTED) == kinds


def test_back_within_one_poll() -> None:
    found = anomalies(
        History(
            writes=[write(0, "a"), write(1, "b", client="x")], polls=[poll(0, (0, "a"), (1, "b"), (0, "a"))]
        )
    )
    assert history.NON_MONOTONIC_POLL in {anomaly.kind for anomaly in found}


def test_a_stale_end_of_the_log() -> None:
    found = anomalies(History(writes=[write(0, "a")], ends=[EndAsked("reader", "t", 0, 2, 3)]))
    assert found == [Anomaly(history.STALE_READ, "t", "reader was told the end 0, below 1")]


def test_what_overlaps_may_come_in_any_order() -> None:
    found = anomalies(
        History(
            writes=[write(1, "b"), write(0, "a", sent=0.5, answered=2)],
            polls=[poll(0, sent=0.9, answered=3)],
            ends=[EndAsked("reader", "t", 0, 0.9, 3)],
        )
    )
    assert found == []


# --- committed offsets


def test_a_commit_that_was_acknowledged_is_not_lost() -> None:
    committed = CommittedOffsets()
    first = committed.sending("p", 10, now=0)
    committed.acknowledged(first, now=1)
    committed.fetched("p", first.name, 10, sent=2)
    with pytest.raises(Violation, match="nothing is fetched, though commit 1"):
        committed.fetched("p", "", -1, sent=2)


def test_an_older_commit_does_not_come_back() -> None:
    committed = CommittedOffsets()
    first = committed.sending("p", 10, now=0)
    committed.acknowledged(first, now=1)
    second = committed.sending("p", 5, now=2)
    committed.fetched("p", first.name, 10, sent=3)  # the second may not have happened yet
    committed.acknowledged(second, now=4)
    committed.fetched("p", second.name, 5, sent=5)
    with pytest.raises(Violation, match="commit 1 is fetched"):
        committed.fetched("p", first.name, 10, sent=5)


def test_what_nobody_committed_is_not_fetched() -> None:
    committed = CommittedOffsets()
    first = committed.sending("p", 10, now=0)
    with pytest.raises(Violation, match="nobody committed"):
        committed.fetched("p", first.name, 11, sent=2)
    committed.refused(first)
    with pytest.raises(Violation, match="was refused"):
        committed.fetched("p", first.name, 10, sent=2)


def test_an_unclear_commit_may_be_seen_late() -> None:
    committed = CommittedOffsets()
    unclear = committed.sending("p", 10, now=0)
    later = committed.sending("p", 20, now=1)
    committed.acknowledged(later, now=2)
    committed.fetched("p", unclear.name, 10, sent=3)


def test_a_commit_that_a_client_knows_does_not_go_with_its_group() -> None:
    committed = CommittedOffsets()
    unclear, acknowledged, fetched = (committed.sending("p", 10, now=0) for _ in range(3))
    committed.acknowledged(acknowledged, now=1)
    committed.fetched("p", fetched.name, 10, sent=2)
    committed.deleted("p", unclear.name)
    for known in (acknowledged, fetched):
        with pytest.raises(Violation, match="a client knows it"):
            committed.deleted("p", known.name)
    with pytest.raises(Violation, match="acknowledged, and was deleted"):
        committed.acknowledged(unclear, now=3)
    with pytest.raises(Violation, match="fetched, and was deleted"):
        committed.fetched("p", unclear.name, 10, sent=4)


# --- ownership


def test_a_partition_has_one_owner() -> None:
    owners = Ownership("g")
    owners.take("a", [0, 1], now=0, until=5)
    with pytest.raises(Violation, match="a owns it"):
        owners.take("b", [1], now=4, until=9)
    owners.give_up("a", [1])
    owners.take("b", [1], now=4, until=9)
    assert owners.owners(4) == {0: "a", 1: "b"}


def test_a_belief_ends_with_the_session() -> None:
    owners = Ownership("g")
    owners.take("a", [0], now=0, until=5)
    owners.take("b", [0], now=5, until=9)
    owners.confirm("b", 12)
    with pytest.raises(Violation, match="b owns it"):
        owners.take("a", [0], now=11, until=15)
