"""The oracle of compaction by key: which records may be missing, and when.

A reader from the start ends with the same state as if nothing had gone. A record goes only if a later one of
its key is there, or if it is a tombstone that has been alone with its key for long enough. A record that is
gone never comes back, so no key is resurrected. Below a clean point each key has one record at most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from dray.log.jobs.cleaned import Cleaned
from dray_simulation.checks.log_truth import Identity, StreamTruth, Violation
from dray_simulation.checks.payload import record_of
from dray_simulation.kernel.runtime import true_wall_ms


def key_of(identity: Identity) -> bytes | None:
    return record_of(identity, 0).key


def replayed(records: Sequence[Identity], offsets: Iterable[int]) -> dict[bytes, Identity]:
    """The state that a reader of these offsets ends with: by key, the record that holds its value."""
    state: dict[bytes, Identity] = {}
    for offset in sorted(offsets):
        record = record_of(records[offset], offset)
        if record.key is None:
            continue
        if record.value is None:
            state.pop(record.key, None)
        else:
            state[record.key] = records[offset]
    return state


class CleanedTruth:
    def __init__(self) -> None:
        self._retention_ms: dict[int, int] = {}  # of tombstones, by stream
        self._alone_since: dict[tuple[int, int], int] = {}  # tombstones without an older record of their key
        self.superseded = 0
        self.tombstones = 0  # that are gone
        self.points = 0
        self.rounds: set[str] = set()  # by the paths of their keys

    def compacts(self, streams: Iterable[int], retention_ms: int) -> None:
        """These streams are compacted by key from now on."""
        for stream in streams:
            self._retention_ms[stream] = min(retention_ms, self._retention_ms.get(stream, retention_ms))

    def may_be_thinned(self, stream: int) -> bool:
        return stream in self._retention_ms

    def thinned(self, truth: StreamTruth, found: set[int]) -> None:
        records, now = truth.records, true_wall_ms()
        if back := found & truth.gone:
            raise Violation(f"stream {truth.number}: offset {min(back)} was gone, and is there again")
        there = range(truth.start, len(records))
        last: dict[bytes | None, int] = {
            key_of(records[offset]): offset for offset in there if offset in found
        }
        for offset in there:
            if offset not in found and offset not in truth.gone:
                self._judge(truth, offset, last, now)
                truth.gone.add(offset)
        if replayed(records, found & set(there)) != replayed(records, there):
            raise Violation(f"stream {truth.number}: a reader from the start ends with another state")
        self._note_alone(truth, found, now)

    def _judge(self, truth: StreamTruth, offset: int, last: dict[bytes | None, int], now: int) -> None:
        record = record_of(truth.records[offset], offset)
        if record.key is None or last.get(record.key, -1) > offset:
            self.superseded += 1
            return
        where = f"stream {truth.number}: offset {offset}"
        if record.value is not None:
            raise Violation(f"{where} was the last of its key, and is gone")
        alone = self._alone_since.get((truth.number, offset))
        if alone is None:
            raise Violation(f"{where}, a tombstone, is gone before what it deletes")
        if alone + self._retention_ms[truth.number] > now:
            raise Violation(f"{where}, a tombstone, is gone after {now - alone} ms")
        self.tombstones += 1

    def _note_alone(self, truth: StreamTruth, found: set[int], now: int) -> None:
        seen: set[bytes | None] = set()
        for offset in sorted(found):
            record = record_of(truth.records[offset], offset)
            if record.value is None and record.key not in seen:
                self._alone_since.setdefault((truth.number, offset), now)
            seen.add(record.key)

    def clean_point(self, truth: StreamTruth, cleaned: Cleaned) -> None:
        if cleaned.round is not None:
            self.rounds.add(cleaned.round.keys)
        self.points += 1
        there = [offset for offset in range(truth.start, cleaned.end) if offset not in truth.gone]
        [(key, count)] = Counter(key_of(truth.records[offset]) for offset in there).most_common(1) or [
            (b"", 0)
        ]
        if count > 1:
            raise Violation(f"stream {truth.number}: {count} records of {key!r} below the clean point")
