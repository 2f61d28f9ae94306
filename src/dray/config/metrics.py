"""How much the metrics of a broker say of single topics and groups."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dray.config.kinds import Duration, Whole
from dray.config.section import Section


class MetricsSection(Section):
    """Numbers of single topics and groups in `/metrics`: each is a series in Prometheus, so they are few."""

    topics: Annotated[int, Whole(0, 10_000)] = Field(
        default=100,
        description="How many topics have their own counters of produce and fetch on a broker. The rest is "
        'counted together, as `topic="(other)"`.',
    )
    groups: Annotated[int, Whole(0, 10_000)] = Field(
        default=100,
        description="How many pairs of group and topic, those that lag most, have their lag shown by the "
        "broker that coordinates the group. `0`: lag is not looked for.",
    )
    lag_interval: Annotated[float, Duration(1.0, 3600.0)] = Field(
        default=15.0,
        description="How often the lag of groups is looked for.",
    )
