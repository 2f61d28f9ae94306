"""Rules of the tally, each taken out of the code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.noticing import Mutation

from dray.broker.cluster import tally, tally_keeper
from dray.broker.cluster.tally import KEPT, Fit, TallyWatch, mark_path
from dray.broker.cluster.tally_keeper import TallyKeeper


def another_s_mark_is_taken_for_ours(patch: pytest.MonkeyPatch) -> None:
    kept = tally.fit

    def fit(*seen: Any) -> Fit:
        found = kept(*seen)
        return Fit.FITS if found is Fit.OTHERS else found

    patch.setattr(tally, "fit", fit)
    patch.setattr(tally_keeper, "fit", fit)


def nobody_waits_before_raising_it(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tally, "QUIET_INTERVALS", 0.0)


def a_token_from_before_the_start_is_proof(patch: pytest.MonkeyPatch) -> None:
    kept = TallyWatch.saw

    def saw(self: TallyWatch, now: float, record: Any, here: Any, above: Any) -> Any:
        if self._shared is None:
            self._shared = record.number
        return kept(self, now, record, here, above)

    patch.setattr(TallyWatch, "saw", saw)


def halves_that_fit_are_proof(patch: pytest.MonkeyPatch) -> None:
    kept = TallyWatch.saw

    def saw(self: TallyWatch, *seen: Any) -> Any:
        step = kept(self, *seen)
        self.is_proven = self.fit is Fit.FITS
        return step

    patch.setattr(TallyWatch, "saw", saw)


def a_record_that_was_read_before_the_mark_is_held_against_it(patch: pytest.MonkeyPatch) -> None:
    async def see(self: TallyKeeper) -> Any:
        record, version = await self._read()
        here = await self._mark(record.number) if record.number else None
        return record, version, here, await self._mark(record.number + 1)

    patch.setattr(TallyKeeper, "_see", see)


def an_outage_counts_as_quiet(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TallyWatch, "missed", lambda _: None)


def nobody_looks_again(patch: pytest.MonkeyPatch) -> None:
    """What a process found at its start it believes for good."""
    kept: Callable[..., Any] = TallyKeeper._look

    async def look(self: TallyKeeper, asks: bool) -> str | None:
        if self._watch.fit is Fit.FITS and not self._watch.is_proven and self.number > 1:
            return self.held()
        found: str | None = await kept(self, asks)
        return found

    patch.setattr(TallyKeeper, "_look", look)


def a_failed_look_begins_the_wait_anew(patch: pytest.MonkeyPatch) -> None:
    def missed(self: TallyWatch) -> None:
        self._number = -1

    patch.setattr(TallyWatch, "missed", missed)


def the_first_mark_is_like_any_other(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TallyKeeper, "_above", lambda self, number: self._mark(number + 1))


def old_marks_go_in_any_order(patch: pytest.MonkeyPatch) -> None:
    async def delete_old(self: TallyKeeper, newest: int) -> None:
        await self._objects.delete(mark_path(newest - 1 - KEPT))

    patch.setattr(TallyKeeper, "_delete_old", delete_old)


MUTATIONS: dict[str, tuple[Mutation, int]] = {
    "another's mark is taken for ours": (another_s_mark_is_taken_for_ours, 0),
    "nobody waits before raising it": (nobody_waits_before_raising_it, 0),
    "a token from before the start is proof": (a_token_from_before_the_start_is_proof, 0),
    "halves that fit are proof": (halves_that_fit_are_proof, 0),
    "a record that was read before the mark is held against it": (
        a_record_that_was_read_before_the_mark_is_held_against_it,
        20,
    ),
    "an outage counts as quiet": (an_outage_counts_as_quiet, 6),
    "nobody looks again": (nobody_looks_again, 0),
    "a failed look begins the wait anew": (a_failed_look_begins_the_wait_anew, 0),
    "the first mark is like any other": (the_first_mark_is_like_any_other, 40),
    "old marks go in any order": (old_marks_go_in_any_order, 0),
}
