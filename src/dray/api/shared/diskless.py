"""`diskless.enable`: the config with which a linked topic is switched, as the migration's design has it.

    state of the topic              shown     true            false, or deleted
    ----------------------------    ------    ------------    -----------------
    no cluster owned it             (not)     refused         refused, nothing
    mirrored                        false     the switch      nothing
    pending, switched, moved        true      nothing         refused

The answer comes when the switch is asked for, not when it is done: `drayd migrate status` tells of that. The
way is forward only; a switch that does not come through goes back by itself, and is false again then.
"""

from __future__ import annotations

from typing import Final

from dray.api.shared.configs import ConfigSource
from dray.api.shared.context import Context
from dray.protocol.messages.describe_configs import DescribeConfigsResourceResult, DescribeConfigsSynonym
from dray.topics import ConfigType, InvalidConfig, Topic
from dray.topics.configs import ConfigDefinition

DISKLESS: Final = "diskless.enable"

_BOOLEAN: Final = 1
_DEFINITION: Final = ConfigDefinition(
    DISKLESS,
    ConfigType.BOOLEAN,
    "false",
    "Whether a topic that came from another cluster is Dray's. Set to true, a linked topic is switched; it "
    "cannot be set back.",
)


async def check_diskless(context: Context, topic: str, value: str | None) -> bool:
    """Whether the topic is to be switched. `value`: None where the config is deleted."""
    linked = context.services.linked
    assert linked is not None
    if value is not None:
        _DEFINITION.check(value)
    wanted = value is not None and value.strip().lower() == "true"
    found = await linked.is_diskless(topic)
    if found is None and value is not None:
        raise InvalidConfig(
            f"{DISKLESS} is for topics that are linked to another cluster, and {topic} is not: "
            f"drayd migrate link {topic}"
        )
    if found and not wanted:
        raise InvalidConfig(
            f"{DISKLESS} of {topic} cannot be set back to false: its migration goes forward only"
        )
    return wanted and found is False


async def describe_diskless(
    context: Context, topic: Topic, *, synonyms: bool, documentation: bool
) -> DescribeConfigsResourceResult | None:
    """None for a topic that does not have it. One that was born here costs no look."""
    linked = context.services.linked
    if linked is None or not topic.leader_epoch:
        return None
    found = await linked.is_diskless(topic.name)
    if found is None:
        return None
    value = "true" if found else "false"
    source = ConfigSource.TOPIC if found else ConfigSource.DEFAULT
    return DescribeConfigsResourceResult(
        name=DISKLESS,
        value=value,
        read_only=found,
        config_source=source,
        synonyms=[DescribeConfigsSynonym(name=DISKLESS, value=value, source=source)]
        if synonyms and found
        else [],
        config_type=_BOOLEAN,
        documentation=_DEFINITION.documentation if documentation else None,
    )
