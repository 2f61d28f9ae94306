"""What carrying has left in a cluster: operators wait until nothing is before they go back to an older build.

Everything counts that such a build cannot read, wherever it is: for one entry it would refuse the whole
stream, even where another entry covers it. So all streams are walked, and no hint is believed.
"""

from __future__ import annotations

from dataclasses import dataclass

from dray.log import job_values, wal_keys
from dray.log.carried_hints import put_hint
from dray.log.entries import CARRIED_FORMAT, HighWatermark, IndexEntry
from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.metadata.contract import StoredValue
from dray.metadata.values import UnreadableValue

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
    """A carried entry that is filed at this key of a stream, or is its head. What this build cannot read is
    not of its making."""
    try:
        if keys.stream_of_high_watermark(record.key) is not None:
            head = HighWatermark.decode(record.value).head
            return head if head is not None and head.is_carried else None
        if keys.end_of_index_entry(record.key) is not None and record.value[:1] == _ENTRY:
            return IndexEntry.decode(record.value)
    except UnreadableValue:
        return None
    return None
