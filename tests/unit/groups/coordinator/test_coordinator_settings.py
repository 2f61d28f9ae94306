"""From the one config to what the groups take."""

from __future__ import annotations

import pytest

from dray.config import Settings
from dray.config.model import BrokerSection, GroupSection
from dray.daemon.broker import serve
from dray.daemon.failures import USAGE, Failure
from dray.daemon.settings import groups_settings


def test_defaults_are_kafkas() -> None:
    settings = groups_settings(Settings())
    assert settings.classic.initial_rebalance_delay_ms == 3000
    assert (settings.classic.session_timeout_minimum_ms, settings.classic.session_timeout_maximum_ms) == (
        6000,
        1_800_000,
    )
    assert (settings.consumer.session_timeout_ms, settings.consumer.heartbeat_interval_ms) == (45_000, 5000)
    assert settings.consumer.assignors == ("uniform", "range")
    assert settings.offset_retention_ms == 7 * 24 * 3600 * 1000
    assert settings.largest_metadata == 4096


def test_every_setting_arrives() -> None:
    groups = GroupSection(
        initial_rebalance_delay="1s",  # type: ignore[arg-type]
        min_session_timeout="2s",  # type: ignore[arg-type]
        max_session_timeout="3s",  # type: ignore[arg-type]
        consumer_session_timeout="4s",  # type: ignore[arg-type]
        consumer_heartbeat_interval="500ms",  # type: ignore[arg-type]
        consumer_assignors="range",
        max_size=6,
        offset_metadata_bytes=7,
        offset_retention="8s",  # type: ignore[arg-type]
        offset_check_interval="9s",  # type: ignore[arg-type]
        memory_groups=10,
    )
    broker = BrokerSection(session_ttl="11s")  # type: ignore[arg-type]
    settings = groups_settings(Settings(groups=groups, broker=broker))
    assert settings.classic.initial_rebalance_delay_ms == 1000
    assert settings.classic.session_timeout_minimum_ms == 2000
    assert settings.classic.session_timeout_maximum_ms == 3000
    assert settings.consumer.session_timeout_ms == 4000
    assert settings.consumer.heartbeat_interval_ms == 500
    assert settings.consumer.assignors == ("range",)
    assert settings.classic.largest_group == settings.consumer.largest_group == 6
    assert settings.largest_metadata == 7
    assert settings.offset_retention_ms == 8000
    assert settings.sweep_interval == 9
    assert settings.memory_groups == 10
    assert settings.session_ttl == 11


@pytest.mark.parametrize(
    "groups",
    [
        {"min_session_timeout": "2s", "max_session_timeout": "1s"},
        {"consumer_session_timeout": "2s", "consumer_heartbeat_interval": "2s"},
    ],
)
def test_what_does_not_fit_together_is_said_in_one_line(groups: dict[str, str]) -> None:
    settings = Settings(groups=GroupSection(**groups))  # type: ignore[arg-type]
    with pytest.raises(Failure, match=r"^groups: ") as failure:
        serve(settings, None, banner=False)
    assert failure.value.code == USAGE
