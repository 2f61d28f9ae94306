"""Streams with something in a format that no level of the cluster gates, and that no command undoes.

It is stored because somebody asked for it, and stays for as long as its records do. All streams are walked:
an older build refuses a stream for one such value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dray.log.entries import GAP_FORMAT, OUTSIDE_FORMAT, SPARSE_FORMAT, HighWatermark
from dray.log.origins import MIRRORED_FORMAT
from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.metadata.contract import StoredValue
from dray.metadata.values import FIRST_FORMAT, UnreadableValue

HOLES: Final = "files with holes"
OUTSIDE: Final = "objects of others"
GAPS: Final = "gaps"
ORIGINS: Final = "high watermarks with an origin"

_OF_ENTRIES: Final[Mapping[int, str]] = {SPARSE_FORMAT: HOLES, OUTSIDE_FORMAT: OUTSIDE, GAP_FORMAT: GAPS}
_PAGE: Final = 256


async def survey_formats(store: StreamStore) -> dict[str, set[int]]:
    """The streams, by what they have. Raises the errors of the metadata store."""
    found: dict[str, set[int]] = {}
    for domain in range(store.domains):
        async for page in store.pages_in(domain, keys.STREAMS, _PAGE):
            for record in page:
                stream = keys.stream_of(record.key)
                for what in _formats_in(record):
                    if stream is not None:
                        found.setdefault(what, set()).add(stream)
    return found


def _formats_in(record: StoredValue) -> list[str]:
    """A value that this build cannot read was not written by it."""
    if keys.end_of_index_entry(record.key) is not None:
        return [what for number, what in _OF_ENTRIES.items() if record.value[:1] == bytes([number])]
    if keys.stream_of_high_watermark(record.key) is None:
        return []
    found = [ORIGINS] if FIRST_FORMAT < record.value[0] <= MIRRORED_FORMAT else []
    try:
        head = HighWatermark.decode(record.value).head
    except UnreadableValue:
        return found
    return found + ([] if head is None else [_OF_ENTRIES[n] for n in _OF_ENTRIES if head.encode()[0] == n])
