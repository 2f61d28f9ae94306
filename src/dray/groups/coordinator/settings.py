"""What an operator may set about groups."""

from __future__ import annotations

from dataclasses import dataclass

from dray.groups.classic import ClassicGroupSettings
from dray.groups.consumer import ConsumerGroupSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsSettings:
    classic: ClassicGroupSettings
    consumer: ConsumerGroupSettings
    session_ttl: float
    """How long after a broker's last sign of life another may take over its groups."""

    largest_metadata: int
    offset_retention_ms: int
    sweep_interval: float
    """Seconds between looks for offsets that have expired."""

    memory_groups: int
    """How many groups without members stay in memory; the longest unused go first."""

    topic_interval: float = 0.5
    """Seconds between looks for topics that came, went or grew."""
