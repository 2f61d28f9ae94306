"""Stretches of a foreign log of which no record is left: markers, and transactions that were aborted.

No file is empty, so such a stretch cannot become one alone. That nothing is left is known only once a unit
was read, so the planner remembers it, and joins the stretch with what follows it, of whatever kind and day;
where nothing follows, with the file before it. The joined unit is read and checked whole: the memory only
says what to read together, and a compactor that has lost it finds out again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dray.log.entries import IndexEntry
from dray.log.stream_store import Versioned

Entries = list[Versioned[IndexEntry]]


class EmptyStretch(NamedTuple):
    """Offsets of a unit that had no record."""

    start: int
    end: int


class LiveParts(NamedTuple):
    before: Entries
    empty: Entries
    after: Entries

    @property
    def rest(self) -> Entries:
        """Without what is empty: there is a gap in its place."""
        return self.before + self.after


def parted(live: Entries, stretch: EmptyStretch | None) -> LiveParts:
    if stretch is None:
        return LiveParts(live, [], [])
    places = [
        place
        for place, entry in enumerate(live)
        if entry.value.is_foreign and stretch.start < entry.value.end <= stretch.end
    ]
    if not places:
        return LiveParts(live, [], [])
    first, following = places[0], places[-1] + 1
    return LiveParts(live[:first], live[first:following], live[following:])


def join(
    parts: LiveParts,
    run: Entries,
    is_due: Callable[[Entries], bool],
    cut: Callable[[Entries, int], Entries],
) -> Entries:
    """The inputs of one unit, or none as long as there is nothing to join with. `run`: the first of what is
    behind the stretch. `cut`: as many of it as make a file, beside so many entries. What was produced here
    waits until it is due, as it would alone."""
    empty = parts.empty
    if run and run[0].value.start == empty[-1].value.end:
        if run[0].value.lists_batches and not is_due(run):
            return []
        return empty + cut(run, len(empty))
    before = parts.before[-1:]
    if before and before[0].value.is_parquet and before[0].value.end == empty[0].value.start:
        return before + empty
    return []
