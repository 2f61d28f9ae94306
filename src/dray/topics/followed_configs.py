"""What the configs of a topic should be while another cluster owns it: pure rules.

What is set on the topic there is set here. What the brokers there have for it is set here too, where Dray's
own default is another one: a topic that was kept for a month must not be cut to a week because nobody had to
say so. What only steers Kafka's files is taken where the topic itself says it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from dray.topics.alterations import Alteration, AlterOperation
from dray.topics.configs import CONFIGS, NO_EFFECT, effective_value
from dray.topics.errors import InvalidConfig

_OURS: Final = "dray."


class FollowedConfigs(NamedTuple):
    wanted: Mapping[str, str]
    """The overrides of the topic at Dray."""
    refused: Mapping[str, str]
    """What is set on the topic at the source and cannot be set here."""


def followed_configs(values: Mapping[str, tuple[str, bool]], defaults: Mapping[str, str]) -> FollowedConfigs:
    """`values` are those of the source: each with whether it is set on the topic. `defaults` are Dray's."""
    wanted: dict[str, str] = {}
    refused: dict[str, str] = {}
    for name, (value, is_own) in sorted(values.items()):
        definition = CONFIGS.get(name)
        if definition is None or name.startswith(_OURS):
            if is_own:
                refused[name] = value
            continue
        if not is_own and definition.documentation == NO_EFFECT:
            continue
        try:
            definition.check(value)
        except InvalidConfig:
            if is_own:
                refused[name] = value
            continue
        if is_own or value != effective_value(name, {}, defaults):
            wanted[name] = value
    return FollowedConfigs(wanted, refused)


def alterations_to(
    current: Mapping[str, str], followed: FollowedConfigs, values: Collection[str]
) -> list[Alteration]:
    """What makes them so. `values` are the names that the source has. What Dray alone has stays, and so does
    what the source says nothing of; all else is the source's to say until the switch."""
    changes = [
        Alteration(name, AlterOperation.SET, value)
        for name, value in followed.wanted.items()
        if current.get(name) != value
    ]
    gone = [
        name
        for name in sorted(current)
        if name in values and name not in followed.wanted and not name.startswith(_OURS)
    ]
    return changes + [Alteration(name, AlterOperation.DELETE, None) for name in gone]
