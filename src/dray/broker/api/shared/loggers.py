"""The loggers of this broker as a resource: their levels, shown and changed while it runs (KIP-412).

Only a broker itself does so, and nothing of it is kept (`dray.base.telemetry.levels`).
"""

from __future__ import annotations

from collections.abc import Sequence

from dray.base.runtime import cut
from dray.base.telemetry.levels import LEVELS, ROOT, levels, set_level
from dray.broker.api.shared.context import Context
from dray.broker.topics import Alteration, AlterOperation, InvalidConfig, InvalidTopicRequest
from dray.kafka.protocol.messages.describe_configs import DescribeConfigsResourceResult

_DYNAMIC_BROKER_LOGGER = 6


def describe_loggers(context: Context, broker: str) -> list[DescribeConfigsResourceResult]:
    _check_is_own(context, broker)
    return [
        DescribeConfigsResourceResult(name=name, value=level, config_source=_DYNAMIC_BROKER_LOGGER)
        for name, level in levels().items()
    ]


def alter_loggers(
    context: Context, broker: str, alterations: Sequence[Alteration], *, validate_only: bool
) -> None:
    """All of them or none."""
    _check_is_own(context, broker)
    known = levels()
    for one in alterations:
        _check(one, one.name in known)
    for one in [] if validate_only else alterations:
        set_level(one.name, one.value if one.operation is AlterOperation.SET else None)
        context.logger().warning("a log level was changed", of=one.name, to=one.value or "as it was")


def _check_is_own(context: Context, broker: str) -> None:
    own = str(context.services.membership.me.broker_id)
    if broker != own:
        raise InvalidTopicRequest(f"Unexpected broker id, expected {own} but received {cut(broker)}")


def _check(one: Alteration, known: bool) -> None:
    if one.operation not in (AlterOperation.SET, AlterOperation.DELETE):
        raise InvalidTopicRequest(
            f"{one.operation.name} operation is not allowed for the BROKER_LOGGER resource"
        )
    if not known:
        raise InvalidConfig(f"Logger {cut(one.name)} does not exist!")
    if one.operation is AlterOperation.DELETE and one.name == ROOT:
        raise InvalidTopicRequest(f"Removing the log level of the {ROOT} logger is not allowed")
    if one.operation is AlterOperation.SET and one.value not in LEVELS:
        raise InvalidConfig(
            f"Cannot set the log level of {one.name} to {cut(one.value or '')} as it is not a supported log "
            f"level. Valid log levels are {', '.join(LEVELS)}"
        )
