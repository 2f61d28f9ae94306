"""From the one config to what the groups take."""

from __future__ import annotations

from typing import Any

import pytest

from dray.broker.groups.coordinator.contract import classic_settings, consumer_settings
from dray.broker.settings import GroupsSettings
from dray.daemons.assembly.failures import USAGE, Failure
from dray.daemons.assembly.settings import groups_settings
from dray.daemons.broker.process import serve
from dray.daemons.config import Settings
from dray.daemons.config.model import BrokerSection


def test_defaults_are_kafkas() -> None:
    settings = groups_settings(Settings())
    classic, consumer = classic_settings(settings), consumer_settings(settings)
    assert classic.initial_rebalance_delay_ms == 3000
    assert (classic.session_timeout_minimum_ms, classic.session_timeout_maximum_ms) == (
        6000,
        1_800_000,
    )
    assert (consumer.session_timeout_ms, consumer.heartbeat_interval_ms) == (45_000, 5000)
    assert consumer.assignors == ("uniform", "range")
    assert settings.offset_retention_ms == 7 * 24 * 3600 * 1000
    assert settings.largest_metadata == 4096
    assert settings.memory_groups == 10_000


def test_every_setting_arrives() -> None:
    groups = GroupsSettings(
        initial_rebalance_delay=1.0,
        min_session_timeout=2.0,
        max_session_timeout=3.0,
        consumer_session_timeout=4.0,
        consumer_heartbeat_interval=0.5,
        max_size=6,
        offset_retention=8.0,
        sweep_interval=9.0,
    )
    broker = BrokerSection(session_ttl=11.0)
    settings = groups_settings(Settings(groups=groups, broker=broker))
    classic, consumer = classic_settings(settings), consumer_settings(settings)
    assert classic.initial_rebalance_delay_ms == 1000
    assert classic.session_timeout_minimum_ms == 2000
    assert classic.session_timeout_maximum_ms == 3000
    assert consumer.session_timeout_ms == 4000
    assert consumer.heartbeat_interval_ms == 500
    assert classic.largest_group == consumer.largest_group == 6
    assert settings.offset_retention_ms == 8000
    assert settings.sweep_interval == 9
    assert settings.session_ttl == 11


@pytest.mark.parametrize(("session", "heartbeat_ms"), [(45.0, 5000), (15.0, 5000), (6.0, 2000)])
def test_members_send_several_heartbeats_in_a_session(session: float, heartbeat_ms: int) -> None:
    consumer = consumer_settings(GroupsSettings(consumer_session_timeout=session))
    assert consumer.heartbeat_interval_ms == heartbeat_ms


@pytest.mark.parametrize(
    "groups",
    [
        {"min_session_timeout": 2.0, "max_session_timeout": 1.0},
        {"consumer_session_timeout": 2.0, "consumer_heartbeat_interval": 2.0},
    ],
)
def test_what_does_not_fit_together_is_said_in_one_line(groups: dict[str, Any]) -> None:
    settings = Settings(groups=GroupsSettings(**groups))
    with pytest.raises(Failure, match=r"^groups: ") as failure:
        serve(settings, None, banner=False, again=lambda: settings)
    assert failure.value.code == USAGE
