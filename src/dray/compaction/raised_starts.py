"""Which tables may still show whole files that lie below a stream's start.

Brokers raise starts, for DeleteRecords and by retention, and know no catalog. A compactor that looks at a
stream sees its start. Where that is higher than when the topic's table was last held against the log, the
table is held against it in this very cycle, not only when the collectors have their turn.

This is kept in memory only, and need not be right: after a restart every start above 0 counts as raised.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable


class RaisedStarts:
    def __init__(self) -> None:
        self._seen: dict[int, int] = {}  # by stream
        self._held: dict[int, int] = {}  # the starts up to which tables were held against the log

    def see(self, stream: int, start: int) -> None:
        """Note the start of a stream whose topic has, or had, a table."""
        self._seen[stream] = start

    def of(self, streams: Iterable[int]) -> dict[int, int]:
        """The streams whose start was raised since, with their starts."""
        return {
            stream: start
            for stream in streams
            if (start := self._seen.get(stream, 0)) > self._held.get(stream, 0)
        }

    def hold(self, starts: dict[int, int]) -> None:
        """The table was held against the log, after these starts had been seen."""
        self._held |= starts

    def keep_only(self, streams: Collection[int]) -> None:
        for known in (self._seen, self._held):
            for gone in known.keys() - set(streams):
                del known[gone]
