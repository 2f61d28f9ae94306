"""When one partition may become Dray's: a pure machine that is given what was seen, and says what to do next.

The boundary is the source's end, and it is final. So it is chosen only when the source can no longer grow,
and Dray has all of it:

1. The leader of this very leadership refuses what clients produce (a probe shows it: a fence takes effect
   some time after the call that put it up). Another leader may not know of the fence yet: it is probed again.
2. No transaction is open, and the high watermark is the end of the leader's log. It is measured twice, with a
   moment in between: a request that passed the fence before it was up may still be on its way into the log.
3. Dray has mirrored up to that end, and not beyond it; and what it has mirrored is still the source's
   history: after an unclean election a log may end where it ended before, with other records.
4. The source and Dray remember the same producers with the same last sequences, so that a retry of what was
   acknowledged there is known here. The source remembers producers for longer than it keeps their records:
   those of which nothing is in the log here are taken over as it has them.

A step that does not come right leads back, never on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from dray.migration.source.source import Leadership, Probe, SourceEnd, SourceProducer

_NAMED: Final = 3


class Next(Enum):
    PROBE = "probe"
    MEASURE = "measure"
    MIRROR = "mirror"
    COMPARE = "compare"
    DECIDE = "decide"
    GO_BACK = "go back"


@dataclass(slots=True)
class PartitionSwitch:
    """`is_probed` is False where the operator vouches that nothing writes: then only the ends speak."""

    is_probed: bool
    moment_seconds: float
    why_back: str | None = None
    _fenced: Leadership | None = None
    _settled: tuple[SourceEnd, float] | None = None
    _confirmed: SourceEnd | None = None
    _mirrored: int = -1
    _compared: bool = False
    taken_over: frozenset[SourceProducer] = frozenset()
    """The producers that the log here says nothing of, as the source has them: they go with B0."""

    @property
    def next(self) -> Next:
        if self.why_back is not None:
            return Next.GO_BACK
        if self.is_probed and self._fenced is None:
            return Next.PROBE
        if self._confirmed is None:
            return Next.MEASURE
        if self._mirrored < self._confirmed.log_end:
            return Next.MIRROR
        if not self._compared:
            return Next.COMPARE
        return Next.DECIDE

    @property
    def boundary(self) -> int:
        """The first offset that Dray gives out. Only once it is decided."""
        if self.next is not Next.DECIDE or self._confirmed is None:
            raise ValueError(f"the boundary is not decided: the next step is to {self.next.value}")
        return self._confirmed.log_end

    def probed(self, leadership: Leadership, found: Probe) -> None:
        self._begin_again()
        self._fenced = leadership if found is Probe.FENCED else None

    def leader_changed(self) -> None:
        """Or may have: a question was refused, or the source could not be reached."""
        self._begin_again()

    def measured(self, end: SourceEnd, now: float) -> None:
        if self.is_probed and end.leadership != self._fenced:
            self._begin_again()
            return
        before = self._settled
        if not end.is_settled or before is None or before[0] != end:
            self._settled = (end, now) if end.is_settled else None
            self._confirmed = None
            self._compared = False
        elif now - before[1] >= self.moment_seconds:
            self._confirmed = end
        self._judge()

    def mirrored(self, end: int) -> None:
        """Dray's own end of the partition."""
        self._mirrored = end
        self._judge()

    def compared(
        self,
        leadership: Leadership,
        history_end: int,
        theirs: Iterable[SourceProducer],
        ours: Iterable[SourceProducer],
    ) -> None:
        """`history_end` is where the source's records of the last mirrored epoch end. `ours` are producers of
        batches in the log here. Those that only Dray remembers do not count: the source has forgotten
        them."""
        if self.is_probed and leadership != self._fenced:
            self._begin_again()
            return
        if self.next is not Next.COMPARE:
            return
        if history_end < self._mirrored:
            self.why_back = (
                f"the source's history differs from offset {history_end} on, and {self._mirrored} was "
                "mirrored: the source has lost records (an unclean election?)"
            )
            return
        known = {each.producer_id: each for each in ours}
        told = list(theirs)
        missed = [each for each in told if known.get(each.producer_id, each) != each]
        if missed:
            names = ", ".join(_difference(each, known[each.producer_id]) for each in missed[:_NAMED])
            more = f" and {len(missed) - _NAMED} more" if len(missed) > _NAMED else ""
            self.why_back = f"producers differ from the source's: {names}{more}"
            return
        self.taken_over = frozenset(each for each in told if each.producer_id not in known)
        self._compared = True

    def _begin_again(self) -> None:
        self._fenced = None
        self._settled = None
        self._confirmed = None
        self._compared = False

    def _judge(self) -> None:
        if self._confirmed is not None and self._mirrored > self._confirmed.log_end:
            self.why_back = (
                f"the source ends at {self._confirmed.log_end}, and {self._mirrored} was mirrored: the "
                "source has lost records (an unclean election?)"
            )


def _difference(theirs: SourceProducer, ours: SourceProducer) -> str:
    return (
        f"producer {theirs.producer_id} (epoch {theirs.epoch}, sequence {theirs.last_sequence} there; "
        f"epoch {ours.epoch}, sequence {ours.last_sequence} here)"
    )
