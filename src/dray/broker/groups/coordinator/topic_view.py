"""The topics as KIP-848 groups see them: a table that is replaced whenever a topic comes, goes or grows.

The broker's cache of topics keeps itself up to date and counts its changes; this compares that count every so
often, looks when it moved, and numbers what it sees. A heartbeat compares the number alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol
from uuid import UUID

from dray.base.runtime import Runtime
from dray.broker.groups.consumer import TopicShape
from dray.broker.topics import Topic
from dray.broker.topics.model import FIRST_LEADER_EPOCH


class KnownTopics(Protocol):
    @property
    def changes(self) -> int: ...

    def all_cached(self) -> Sequence[Topic]: ...

    def unreadable(self) -> Collection[str]: ...


class TopicView:
    """Both sides of one table: names to shapes, ids to names."""

    def __init__(
        self,
        runtime: Runtime,
        topics: KnownTopics,
        interval: float,
        gone: Callable[[frozenset[str]], None] = lambda _: None,
        came: Callable[[], None] = lambda: None,
    ) -> None:
        """`gone` hears of names whose topic is no more, even if there is another of that name by now. `came`
        hears that there are new topics which began in another cluster."""
        self._gone = gone
        self._came = came
        self._runtime = runtime
        self._topics = topics
        self._interval = interval
        self._seen: int | None = None
        self._shapes: dict[str, TopicShape] = {}
        self._names: dict[UUID, str] = {}
        self.version = 0

    def shape(self, name: str) -> TopicShape | None:
        return self._shapes.get(name)

    def name_of(self, topic_id: UUID) -> str | None:
        return self._names.get(topic_id)

    def names(self) -> Sequence[str]:
        return tuple(self._shapes)

    def look(self) -> None:
        """Take in what the cache knows by now."""
        changes = self._topics.changes
        if changes == self._seen:
            return
        self._seen = changes
        known = self._topics.all_cached()
        shapes = {topic.name: TopicShape(topic.topic_id, len(topic.streams)) for topic in known}
        # A topic that cannot be read any more is as it was last seen: it is not gone, and members go on
        # reading it from the brokers that can.
        shapes |= {name: self._shapes[name] for name in self._topics.unreadable() if name in self._shapes}
        if shapes == self._shapes:  # a config changed, which no group looks at
            return
        before, self._shapes = self._shapes, shapes
        self._names = {shape.topic_id: name for name, shape in shapes.items()}
        self.version += 1
        gone = [
            name
            for name, shape in before.items()
            if (now := shapes.get(name)) is None or now.topic_id != shape.topic_id
        ]
        if gone:
            self._gone(frozenset(gone))
        if any(topic.leader_epoch > FIRST_LEADER_EPOCH and topic.name not in before for topic in known):
            self._came()

    async def follow(self) -> None:
        while True:
            self.look()
            await self._runtime.sleep(self._interval)
