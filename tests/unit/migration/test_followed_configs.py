"""The configs of a topic that another cluster owns."""

from __future__ import annotations

from dray.broker.topics.alterations import alter_configs
from dray.migration.live.followed_configs import alterations_to, followed_configs

MONTH = str(30 * 24 * 3600 * 1000)
SOURCE = {
    "retention.ms": (MONTH, False),
    "retention.bytes": ("-1", False),
    "cleanup.policy": ("compact", True),
    "segment.bytes": ("1000000", True),
    "segment.ms": ("1000", False),
    "remote.storage.enable": ("true", True),
    "another.vendors": ("*", True),
    "something.new": ("1", False),
}


def test_what_holds_at_the_source_holds_here() -> None:
    followed = followed_configs(SOURCE, {})
    assert followed.wanted == {"cleanup.policy": "compact", "retention.ms": MONTH, "segment.bytes": "1000000"}
    assert followed.refused == {
        "another.vendors": "*",
        "remote.storage.enable": "true",
    }


def test_a_default_of_dray_that_is_the_same_is_not_set() -> None:
    assert "retention.ms" not in followed_configs(SOURCE, {"retention.ms": MONTH}).wanted


def altered(current: dict[str, str]) -> dict[str, str]:
    followed = followed_configs(SOURCE, {})
    return alter_configs(current, alterations_to(current, followed, SOURCE), {})


def test_what_is_gone_at_the_source_goes_here_and_what_is_dray_s_stays() -> None:
    followed = dict(followed_configs(SOURCE, {}).wanted)
    before = {"retention.bytes": "5", "dray.iceberg.enabled": "false", "retention.ms": "1"}
    assert altered(before) == followed | {"dray.iceberg.enabled": "false"}


def test_nothing_is_altered_when_all_is_as_it_should_be() -> None:
    followed = followed_configs(SOURCE, {})
    assert alterations_to(followed.wanted, followed, SOURCE) == []
