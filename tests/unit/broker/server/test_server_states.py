"""The states of a connection, without one: the table, what it leads to, and what it leaves out."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Final

import pytest

from dray.broker.server.states import (
    READING,
    WRITING,
    ConnectionStates,
    Event,
    ImpossibleEvent,
    Reading,
    Writing,
)

FROM_OUTSIDE = (Event.TRANSPORT_FULL, Event.TRANSPORT_READY, Event.HUNG_UP, Event.LOST)
"""A transport reports these when it likes."""

OPEN_FOR_ANSWERS = (Writing.OPEN, Writing.DUE, Writing.FULL)


Both = tuple[Reading, Writing]


def after(events: Iterable[Event]) -> ConnectionStates:
    states = ConnectionStates()
    for event in events:
        states.happened(event)
    return states


def reachable() -> dict[Both, tuple[Event, ...]]:
    """All states that go together, each with events that lead there."""
    ways: dict[Both, tuple[Event, ...]] = {}
    left: list[tuple[Event, ...]] = [()]
    while left:
        way = left.pop(0)
        states = after(way)
        if (states.reading, states.writing) in ways:
            continue
        ways[states.reading, states.writing] = way
        left += [(*way, event) for event in Event if is_possible(event, states.reading, states.writing)]
    return ways


def is_possible(event: Event, reading: Reading, writing: Writing) -> bool:
    return (event not in READING or reading in READING[event]) and (
        event not in WRITING or writing in WRITING[event]
    )


WAYS: Final = reachable()


def test_these_states_go_together_and_no_others() -> None:
    assert set(WAYS) == {
        *product((Reading.OPEN, Reading.PAUSED, Reading.SHUT, Reading.ENDED), OPEN_FOR_ANSWERS),
        (Reading.DISCARDING, Writing.CLOSING),
        (Reading.ENDED, Writing.CLOSING),
        (Reading.ENDED, Writing.LOST),
    }


def test_a_connection_starts_open() -> None:
    states = ConnectionStates()
    assert (states.reading, states.writing) == (Reading.OPEN, Writing.OPEN)
    assert (states.listening, states.writable, states.closing) == (True, True, False)


@pytest.mark.parametrize(
    ("events", "reading", "writing"),
    [
        ([Event.GATE_CLOSED], Reading.PAUSED, Writing.OPEN),
        ([Event.GATE_CLOSED, Event.GATE_OPENED], Reading.OPEN, Writing.OPEN),
        ([Event.GATE_CLOSED, Event.NO_MORE_FRAMES], Reading.SHUT, Writing.OPEN),
        ([Event.GATE_CLOSED, Event.NO_MORE_FRAMES, Event.CLOSED], Reading.DISCARDING, Writing.CLOSING),
        ([Event.CLOSED], Reading.DISCARDING, Writing.CLOSING),
        ([Event.CLOSED, Event.HUNG_UP], Reading.ENDED, Writing.CLOSING),
        ([Event.HUNG_UP], Reading.ENDED, Writing.OPEN),
        ([Event.HUNG_UP, Event.CLOSED], Reading.ENDED, Writing.CLOSING),
        ([Event.HUNG_UP, Event.GATE_CLOSED], None, None),
        ([Event.FLUSH_SCHEDULED], Reading.OPEN, Writing.DUE),
        ([Event.FLUSH_SCHEDULED, Event.FLUSH_BEGUN], Reading.OPEN, Writing.OPEN),
        ([Event.FLUSH_SCHEDULED, Event.FLUSH_SCHEDULED], None, None),
        ([Event.FLUSH_SCHEDULED, Event.TRANSPORT_FULL], Reading.OPEN, Writing.FULL),
        ([Event.TRANSPORT_FULL, Event.FLUSH_SCHEDULED], None, None),
        ([Event.TRANSPORT_FULL, Event.TRANSPORT_READY], Reading.OPEN, Writing.OPEN),
        ([Event.TRANSPORT_FULL, Event.CLOSED, Event.TRANSPORT_READY], Reading.DISCARDING, Writing.CLOSING),
        ([Event.CLOSED, Event.FLUSH_SCHEDULED], None, None),
        ([Event.CLOSED, Event.GATE_OPENED], None, None),
        ([Event.LOST], Reading.ENDED, Writing.LOST),
        ([Event.LOST, Event.CLOSED], Reading.ENDED, Writing.LOST),
        ([Event.LOST, Event.TRANSPORT_READY], Reading.ENDED, Writing.LOST),
        ([Event.NO_MORE_FRAMES], None, None),
    ],
    ids=lambda value: "-".join(event.name for event in value) if isinstance(value, list) else None,
)
def test_what_follows(events: list[Event], reading: Reading | None, writing: Writing | None) -> None:
    states = ConnectionStates()
    for event in events[:-1]:
        states.happened(event)
    if reading is None:
        with pytest.raises(ImpossibleEvent):
            states.happened(events[-1])
    else:
        states.happened(events[-1])
        assert (states.reading, states.writing) == (reading, writing)


@pytest.mark.parametrize("event", FROM_OUTSIDE)
def test_what_a_transport_reports_is_possible_in_every_state(event: Event) -> None:
    for way in WAYS.values():
        after(way).happened(event)


@pytest.mark.parametrize("both", WAYS)
def test_nothing_leads_back(both: Both) -> None:
    """A side that has ended does not begin again."""
    before = after(WAYS[both])
    for event in Event:
        if not is_possible(event, *both):
            continue
        then = after((*WAYS[both], event))
        assert before.listening or not then.listening
        assert then.closing or not before.closing
        assert before.writing is not Writing.LOST or then.writing is Writing.LOST
        assert before.reading is not Reading.ENDED or then.reading is Reading.ENDED


@pytest.mark.parametrize("both", WAYS)
def test_what_the_states_mean(both: Both) -> None:
    states = after(WAYS[both])
    reading, writing = both
    assert states.listening == (reading in {Reading.OPEN, Reading.PAUSED})
    assert states.writable == (writing in {Writing.OPEN, Writing.DUE})
    assert states.closing == (writing in {Writing.CLOSING, Writing.LOST})


def test_an_impossible_event_changes_nothing_and_says_what_it_met() -> None:
    impossible = [(event, both) for event, both in product(Event, WAYS) if not is_possible(event, *both)]
    assert impossible
    for event, both in impossible:
        states = after(WAYS[both])
        with pytest.raises(ImpossibleEvent, match=f"{event.name} while reading is {both[0].name} and"):
            states.happened(event)
        assert (states.reading, states.writing) == both


def test_every_event_and_every_state_is_in_the_tables() -> None:
    assert set(READING) | set(WRITING) == set(Event)
    assert {reading for moves in READING.values() for reading in moves} == set(Reading)
    assert {writing for moves in WRITING.values() for writing in moves} == set(Writing)
