"""How far a mirror is behind its source: in records, in seconds, and since when the source is silent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dray.migration.live.topic_mirror import MirrorProgress

MOST_SEEN: Final = 16


@dataclass(frozen=True, slots=True)
class MirrorLag:
    records: int = 0
    """That the source has and the mirror has not brought yet."""
    seconds: float = 0.0
    """For how long the oldest of them has been known to be there, at least."""
    silent_seconds: float = 0.0
    """Since a partition that is mirrored was last answered by its leader: then `records` is old news."""
    skipped: int = 0
    """Offsets that the source deleted before they were mirrored, so far."""


@dataclass(slots=True)
class _Seen:
    since: float  # when the partition was first looked at
    ends: list[tuple[float, int]] = field(default_factory=list)
    """When the source was first seen to end there, and where: those that are not mirrored yet. When they are
    too many, the one goes that leaves the smallest gap, so that the time is exact to a part of itself."""
    skipped: int = 0  # as the mirror said last: one that begins anew begins at nothing


class LagClock:
    """Of one topic in one process. It sees the progress of its mirror every second or so."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}
        self._skipped = 0

    def look(self, now: float, progress: Mapping[int, MirrorProgress]) -> MirrorLag:
        records, seconds, silent = 0, 0.0, 0.0
        for partition, each in progress.items():
            if each.is_ours:
                self._seen.pop(partition, None)
                continue
            seen = self._seen.setdefault(partition, _Seen(now))
            self._skipped += each.skipped - (seen.skipped if seen.skipped <= each.skipped else 0)
            seen.skipped = each.skipped
            records += each.lag or 0
            seconds = max(seconds, _seconds(seen, now, each))
            if each.stopped is None:
                silent = max(silent, now - (seen.since if each.heard is None else each.heard))
        return MirrorLag(records, seconds, silent, self._skipped)


def _seconds(seen: _Seen, now: float, progress: MirrorProgress) -> float:
    ends, source_end = seen.ends, progress.last_stable
    if source_end is not None and source_end > (ends[-1][1] if ends else progress.end):
        ends.append((now, source_end))
    while ends and ends[0][1] <= progress.end:
        del ends[0]
    if len(ends) > MOST_SEEN:
        gaps = [after[0] - before[0] for before, after in zip(ends, ends[2:], strict=False)]
        del ends[1 + gaps.index(min(gaps))]
    return now - ends[0][0] if ends else 0.0
