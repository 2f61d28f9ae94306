"""What an operator may set about groups."""

from __future__ import annotations

from dataclasses import dataclass, field

from dray.groups.classic import ClassicGroupSettings
from dray.groups.consumer import ConsumerGroupSettings
from dray.groups.offsets import DEFAULT_LARGEST_METADATA, DEFAULT_RETENTION_MS


@dataclass(frozen=True, slots=True)
class GroupsSettings:
    classic: ClassicGroupSettings = field(default_factory=ClassicGroupSettings)
    consumer: ConsumerGroupSettings = field(default_factory=ConsumerGroupSettings)
    session_ttl: float = 10.0
    """How long after a broker's last sign of life another may take over its groups."""

    largest_metadata: int = DEFAULT_LARGEST_METADATA
    offset_retention_ms: int = DEFAULT_RETENTION_MS
    sweep_interval: float = 600.0
    """Seconds between looks for offsets that have expired."""

    memory_groups: int = 10_000
    """How many groups without members stay in memory; the longest unused go first."""

    topic_interval: float = 0.5
    """Seconds between looks for topics that came, went or grew."""
