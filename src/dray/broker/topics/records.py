"""Topic records in the metadata store: read, created, changed and deleted by compare-and-set.

An unclear reply is resolved by reading, never by aiming elsewhere. A change that expects version v can apply
only while the record is at v. While it is, the same change may be sent again; once the record has moved, the
outcome is settled. A creation is recognised by the topic id it carries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from dray.base.runtime import Runtime
from dray.broker.topics.errors import InvalidTopicRequest, TopicExists, TopicsUnavailable, UnknownTopic
from dray.broker.topics.model import Topic, decode_topic, encode_topic
from dray.metadata import keys
from dray.metadata.contract import ABSENT, Ambiguous, Delete, MetadataStore, Put, Unavailable
from dray.metadata.update import ALL_FAILURES, update

# The bytes of a tombstone beyond its record's streams: a name, an id, a time.
_ROOM_FOR_TOMBSTONE: Final = 1024


class Undecided(TopicsUnavailable):
    """The write may still land: nothing that it names may be taken away."""


class TopicRecords:
    def __init__(self, store: MetadataStore, runtime: Runtime, defaults: Mapping[str, str]) -> None:
        self._store = store
        self._runtime = runtime
        self._defaults = defaults

    async def read(self, name: str, *, certain: bool = False) -> tuple[Topic, int] | None:
        """The topic and its version. `certain`: see every write acknowledged before the call."""
        if certain:
            await self._store.barrier(keys.CLUSTER_DOMAIN)
        record = await self._store.get(keys.CLUSTER_DOMAIN, keys.topic(name))
        if record is None:
            return None
        return decode_topic(name, record.value, self._defaults), record.version

    def _encoded(self, topic: Topic) -> bytes:
        """Refuses a topic that does not fit into one value. Its tombstone would not fit either, and here the
        client still gets an answer."""
        value, most = encode_topic(topic), self._store.limits.value_bytes - _ROOM_FOR_TOMBSTONE
        if len(value) > most:
            raise InvalidTopicRequest(
                f"Topic '{topic.name}' would take {len(value)} bytes, and the metadata store takes {most} at "
                "once: give it fewer partitions, or shorter configs."
            )
        return value

    async def create(self, topic: Topic) -> int:
        """The version of the new record. Raises `TopicExists`, `Undecided`, `TopicsUnavailable`."""
        put = Put(keys.topic(topic.name), self._encoded(topic), ABSENT)
        unclear = False

        async def attempt() -> int | None:
            nonlocal unclear
            if unclear and (found := await self.read(topic.name, certain=True)) is not None:
                if found[0].topic_id == topic.topic_id:
                    return found[1]
                raise TopicExists(topic.name)
            try:
                [outcome] = await self._store.write(keys.CLUSTER_DOMAIN, [put])
            except Ambiguous:
                unclear = True
                raise
            if outcome.applied:
                return outcome.version
            # After an unclear reply, what stands in the way may be our own first copy: read it.
            if not unclear:
                raise TopicExists(topic.name)
            return None

        try:
            return await update(self._runtime, attempt, ALL_FAILURES)
        except Ambiguous as error:
            raise Undecided(f"Whether topic '{topic.name}' was created is not known yet.") from error
        except Unavailable as error:
            raise TopicsUnavailable(
                f"Topic '{topic.name}' was not created: the metadata store is unavailable."
            ) from error

    async def change(self, name: str, change: Callable[[Topic | None], Topic]) -> tuple[Topic, int]:
        """Make `change` of the topic as it is, even while others change it.

        `change` gets the topic (None: there is none) and answers the changed one; what it raises ends
        the attempt. It may be called several times.
        """

        async def attempt() -> tuple[Topic, int] | None:
            found = await self.read(name, certain=True)
            changed = change(None if found is None else found[0])
            if found is None:
                raise UnknownTopic(name)
            if changed == found[0]:
                return found  # also: our own write, whose reply was lost
            put = Put(keys.topic(name), self._encoded(changed), found[1])
            [outcome] = await self._store.write(keys.CLUSTER_DOMAIN, [put])
            return (changed, outcome.version) if outcome.applied else None

        try:
            return await update(self._runtime, attempt, ALL_FAILURES)
        except Ambiguous as error:
            raise Undecided(f"Whether topic '{name}' was changed is not known yet.") from error
        except Unavailable as error:
            raise TopicsUnavailable(
                f"Topic '{name}' was not changed: the metadata store is unavailable."
            ) from error

    async def delete(self, name: str, version: int) -> bool:
        """Delete that version of the record. False if it has changed. Raises the store's errors."""
        [outcome] = await self._store.write(keys.CLUSTER_DOMAIN, [Delete(keys.topic(name), version)])
        return outcome.applied
