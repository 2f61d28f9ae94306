"""Which topics become tables. Topics in which tools keep their own state do not: such a table has no use.

A topic's own config `dray.iceberg.enabled` decides, either way. Where it says nothing, the topic's name does,
and then the cluster's default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final

from dray.topics.model import Topic

ENABLED: Final = "dray.iceberg.enabled"


class TableNames:
    """Patterns of names of topics that do not become tables: `*` is any text, `?` any character."""

    def __init__(self, without: Sequence[str]) -> None:
        self._without = tuple(without)

    def applied_to(self, topic: Topic) -> Topic:
        """The topic with settings that say whether it becomes a table."""
        if not topic.settings.iceberg_enabled or self.pattern_of(topic) is None:
            return topic
        return replace(topic, settings=replace(topic.settings, iceberg_enabled=False))

    def pattern_of(self, topic: Topic) -> str | None:
        """The pattern that keeps the topic from becoming a table, if one does."""
        if ENABLED in topic.config:
            return None
        return next((pattern for pattern in self._without if fnmatchcase(topic.name, pattern)), None)

    def why_not(self, topic: Topic, defaults: Mapping[str, str]) -> str | None:
        """Why the topic does not become a table, and what to do about it; None if it does."""
        if (pattern := self.pattern_of(topic)) is not None:
            return (
                f"its name matches {pattern} of iceberg.exclude_topics; "
                f"set {ENABLED}=true on the topic if it is to have one"
            )
        if topic.settings.iceberg_enabled:
            return None
        if ENABLED in topic.config:
            return f"the topic's config has {ENABLED}={topic.config[ENABLED]}"
        return f"topics.defaults has {ENABLED}={defaults[ENABLED]}; set it to true on the topic"
