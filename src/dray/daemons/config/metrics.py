"""How much the metrics of a broker say of single topics and groups."""

from __future__ import annotations

from dataclasses import dataclass

from dray.base.config.kinds import Whole
from dray.base.config.setting import setting


@dataclass(frozen=True, kw_only=True)
class MetricsSection:
    """Numbers of single topics and groups in `/metrics`: each is a series in Prometheus, so they are few."""

    topics: int = setting(
        100,
        Whole(0, 10_000),
        "How many topics have their own counters of produce and fetch on a broker. The rest is "
        'counted together, as `topic="(other)"`.',
    )
    groups: int = setting(
        100,
        Whole(0, 10_000),
        "How many pairs of group and topic, those that lag most, have their lag shown by the "
        "broker that coordinates the group. `0`: lag is not looked for.",
    )
    # For tests
    lag_interval: float = 15.0  # seconds between looks for the lag of groups
