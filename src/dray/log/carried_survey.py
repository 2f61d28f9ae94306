"""How much is carried in a cluster: operators wait for 0 before they go back to an older build."""

from __future__ import annotations

from dataclasses import dataclass

from dray.log.stream_store import StreamStore
from dray.metadata import keys

_PAGE = 256


@dataclass(slots=True)
class CarriedSurvey:
    carried_streams: int = 0
    carried_entries: int = 0
    carried_bytes: int = 0


async def survey_carried(store: StreamStore) -> CarriedSurvey:
    """Of all streams that a hint leads to. Raises the errors of the metadata store."""
    found = CarriedSurvey()
    for domain in range(store.domains):
        await store.barrier_in(domain)
        async for page in store.pages_in(domain, keys.CARRIED, _PAGE):
            for record in page:
                stream = keys.stream_of_carried_hint(record.key)
                if stream is not None:
                    await _look(store, stream, found)
    return found


async def _look(store: StreamStore, stream: int, found: CarriedSurvey) -> None:
    view = await store.view(stream)
    if view is None or view.high_watermark.value.closed:
        return
    head = view.high_watermark.value.head
    entries = [entry.value for entry in view.split()[0]] + ([] if head is None else [head])
    carried = [entry for entry in entries if entry.is_carried]
    found.carried_streams += bool(carried)
    found.carried_entries += len(carried)
    found.carried_bytes += sum([len(entry.data) for entry in carried])
