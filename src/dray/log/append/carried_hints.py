"""How carried entries are found: the hints at streams that carry, and a survey that believes no hint.

Hints are keys by which packers find what others have carried, and those before them.

*A stream that carries has a hint, at every moment:*

- A carried commit puts the hint, in the same write, unless its committer has put it before and every commit
  of the stream since then was its own (`StreamState.hinted_at`). Whoever else moves the high watermark takes
  that knowledge away: a commit that loses its race loads the state anew, and puts the hint.
- A hint is deleted in this order (`packing_rounds.py`): read it; seal the stream, and be told that the seal
  applied; then see that the stream carries nothing; delete the hint *at the version that was read*. That look
  sees all that was carried before the seal. A commit that carries after it puts the hint after it, and so at
  another version.

No clock is asked for that. A hint is put again every half hour only so that others leave it alone: one that
has stood for an hour is of a broker that no longer carries, or no longer is.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from dray.log import wal_keys
from dray.log.entries import CARRIED_FORMAT, HighWatermark, IndexEntry
from dray.log.jobs import values as job_values
from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.metadata.contract import Put, StoredValue
from dray.metadata.values import UnreadableValue, ValueCorrupt, seal, unseal

FORMAT: Final = 1
_HINT: Final = Struct(">q")


def put_hint(stream: int, now_ms: int) -> Put:
    return Put(keys.carried_hint(stream), encode_hint(now_ms))


def encode_hint(now_ms: int) -> bytes:
    """The time is for people."""
    return seal(FORMAT, _HINT.pack(now_ms))


def check_hint(value: bytes) -> None:
    """Raises `UnreadableValue`: the hint of another build may ask for something else."""
    _, body = unseal("a hint at carried entries", value, FORMAT)
    if len(body) != _HINT.size:
        raise ValueCorrupt("a hint at carried entries", f"it has {len(body)} bytes")


# --- the survey
#
# Operators wait until no carried entry is left before they go back to an older build. Everything counts
# that such a build cannot read, wherever it is: for one entry it would refuse the whole stream, even where
# another entry covers it. So all streams are walked.


_PAGE = 256
_ENTRY = bytes([CARRIED_FORMAT])
_JOB = bytes([job_values.CARRIED_FORMAT])
_MARK = bytes([wal_keys.PACK_FORMAT])


@dataclass(slots=True)
class CarriedSurvey:
    carried_streams: int = 0
    carried_entries: int = 0
    carried_bytes: int = 0
    carried_jobs: int = 0  # that pack, or compact carried entries
    pack_marks: int = 0  # of packs that are under way, or were left


async def survey_carried(store: StreamStore, *, hint_ms: int | None = None) -> CarriedSurvey:
    """Of all streams. `hint_ms`: put a hint, with this time, at each stream that carries and has none, so
    that brokers find it. Raises the errors of the metadata store."""
    found = CarriedSurvey()
    for domain in range(store.domains):
        await store.barrier_in(domain)
        carrying: set[int] = set()
        async for page in store.pages_in(domain, keys.STREAMS, _PAGE):
            for record in page:
                stream, entry = keys.stream_of(record.key), _carried_in(record)
                if stream is not None and entry is not None:
                    carrying.add(stream)
                    found.carried_entries += 1
                    found.carried_bytes += len(entry.data)
        found.carried_streams += len(carrying)
        async for page in store.pages_in(domain, keys.JOBS, _PAGE):
            found.carried_jobs += sum([each.value[:1] == _JOB for each in page])
        async for page in store.pages_in(domain, keys.STAGING, _PAGE):
            found.pack_marks += sum([each.value[:1] == _MARK for each in page])
        if hint_ms is not None:
            for stream in sorted(carrying):
                if await store.get_in(domain, keys.carried_hint(stream)) is None:
                    await store.write_in(domain, [put_hint(stream, hint_ms)])
    return found


def _carried_in(record: StoredValue) -> IndexEntry | None:
    """A carried entry that is filed at this key of a stream, or is its head. A value that this build cannot
    read was not written by it."""
    try:
        if keys.stream_of_high_watermark(record.key) is not None:
            head = HighWatermark.decode(record.value).head
            return head if head is not None and head.is_carried else None
        if keys.end_of_index_entry(record.key) is not None and record.value[:1] == _ENTRY:
            return IndexEntry.decode(record.value)
    except UnreadableValue:
        return None
    return None
