"""Which topics a compactor goes about by itself, where there are several.

Each topic falls to one of those that are there, by its id and theirs, so that no two plan the same streams,
commit to the same tables and collect the same files. Nothing rests on it: jobs and tables are changed by
compare-and-set, and whoever is not sure who else is there takes all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from hashlib import blake2b
from uuid import UUID


@dataclass(frozen=True, slots=True)
class TopicShare:
    me: str
    others: Collection[str] = ()

    def has(self, topic_id: UUID) -> bool:
        """The topics of one that goes are spread over those that stay; no other topic moves."""
        mine = _weight(self.me, topic_id)
        return all(mine >= _weight(other, topic_id) for other in self.others)


WHOLE = TopicShare("")
ShareNow = Callable[[], TopicShare]


def _weight(process: str, topic_id: UUID) -> bytes:
    return blake2b(topic_id.bytes + process.encode(), digest_size=16).digest()
