"""The topics as a group sees them: which exist, under which id, with how many partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol
from uuid import UUID


class TopicShape(NamedTuple):
    topic_id: UUID
    partitions: int


class TopicsView(Protocol):
    @property
    def version(self) -> int:
        """Another number whenever a topic was created, deleted or has grown.

        A heartbeat compares this one number, and looks at topics only when it moved.
        """
        ...

    def shape(self, name: str) -> TopicShape | None: ...

    def name_of(self, topic_id: UUID) -> str | None: ...


class TopicsTable:
    """A view over a mapping that nobody changes any more."""

    def __init__(self, shapes: Mapping[str, TopicShape], version: int) -> None:
        self.version = version
        self._shapes = shapes
        self._names = {shape.topic_id: name for name, shape in shapes.items()}

    def shape(self, name: str) -> TopicShape | None:
        return self._shapes.get(name)

    def name_of(self, topic_id: UUID) -> str | None:
        return self._names.get(topic_id)
