"""`diskless.enable`: the config with which a linked topic is switched, as the migration's design has it.

    state of the topic              shown     true            false, or deleted
    ----------------------------    ------    ------------    -----------------
    no cluster owned it             true      nothing         refused, nothing
    mirrored                        false     the switch      nothing
    pending, switched, moved        true      nothing         refused

The switch takes ALTER of the cluster, beside ALTER_CONFIGS of the topic: it cannot be undone, and it denies
WRITE to all at the source, where the owner of a topic here may have no rights.

The answer comes when the switch is asked for, not when it is done: `drayd migrate status` tells of that. The
way is forward only; a switch that does not come through goes back by itself, and is false again then.
"""

from __future__ import annotations

from typing import Final

from dray.broker.api.shared.checks import ALTER_CLUSTER, NotAllowed
from dray.broker.api.shared.configs import ConfigSource
from dray.broker.api.shared.context import Context
from dray.broker.topics import CONFIGS, InvalidConfig, Topic
from dray.kafka.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsSynonym,
)

DISKLESS: Final = "diskless.enable"

_BOOLEAN: Final = 1
_DEFINITION: Final = CONFIGS[DISKLESS]


async def check_diskless(context: Context, topic: str, value: str | None) -> bool:
    """Whether the topic is to be switched. `value`: None where the config is deleted. Raises `NotAllowed`."""
    linked = context.services.linked
    assert linked is not None
    wanted = value is not None and value.strip().lower() == "true"
    found = await linked.is_diskless(topic)
    if value is not None and (found is None or value.strip().lower() != "false"):
        _DEFINITION.check(value)
    if found and not wanted:
        raise InvalidConfig(
            f"{DISKLESS} of {topic} cannot be set back to false: its migration goes forward only"
        )
    switches = wanted and found is False
    if switches and not context.may(ALTER_CLUSTER, about=f"switch of topic {topic}"):
        raise NotAllowed(
            ALTER_CLUSTER, f"{DISKLESS} switches {topic} for good: it takes ALTER of the cluster, too"
        )
    return switches


async def describe_diskless(
    context: Context, topic: Topic, *, synonyms: bool, documentation: bool
) -> DescribeConfigsResourceResult | None:
    """None for a topic that is like all others. One that was born here costs no look."""
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
