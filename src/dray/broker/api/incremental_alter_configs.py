"""IncrementalAlterConfigs (44), versions 0 and 1: set, delete, append to or subtract from overrides.

All changes to one topic, group or broker's loggers are made at once or not at all. A config named twice for
one, an operation that is none of the four, or one that lacks its value is an INVALID_REQUEST. The configs of
groups are no lists: nothing can be appended to them. Only topics, groups and the broker's loggers can be
altered (`shared/configs`, `shared/loggers`). From a broker nothing is ever set here, so deleting does nothing
and succeeds: `kafka-reassign-partitions --verify` deletes the throttles of all brokers, and would end with an
error otherwise. `diskless.enable` is no override: it switches a linked topic (`shared/diskless.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dray.base.runtime import cut
from dray.broker.api.shared import Context, ResourceType, alter_each, check_named, handles
from dray.broker.api.shared.checks import (
    ALTER_CLUSTER,
    ALTER_CLUSTER_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_TOPIC_CONFIGS,
    Denial,
)
from dray.broker.api.shared.diskless import DISKLESS, check_diskless
from dray.broker.api.shared.loggers import alter_loggers
from dray.broker.groups.coordinator import GroupUnavailable
from dray.broker.topics import Alteration, AlterOperation, InvalidConfig, InvalidTopicRequest
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


@handles(
    IncrementalAlterConfigsRequest,
    0,
    1,
    checks={
        ALTER_TOPIC_CONFIGS: Denial.RESOURCE,
        ALTER_GROUP_CONFIGS: Denial.RESOURCE,
        ALTER_CLUSTER_CONFIGS: Denial.RESOURCE,
        ALTER_CLUSTER: Denial.RESOURCE,
    },
)
async def handle(
    context: Context, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    async def alter(resource: AlterConfigsResource) -> None:
        if resource.resource_type == ResourceType.GROUP:
            alterations = _alterations(resource)
            await context.services.groups.configs.alter(
                resource.resource_name,
                lambda overrides: _altered(overrides, alterations),
                validate_only=request.validate_only,
            )
            return
        name, alterations = resource.resource_name, _alterations(resource)
        if resource.resource_type == ResourceType.BROKER_LOGGER:
            alter_loggers(context, name, alterations, validate_only=request.validate_only)
            return
        linked = context.services.linked
        switches = False
        if linked is not None:
            for one in [each for each in alterations if each.name == DISKLESS]:
                alterations.remove(one)
                switches = await check_diskless(context, name, _diskless_value(one))
        await context.services.topics.alter_config(name, alterations, validate_only=request.validate_only)
        if linked is not None and switches:
            await linked.switch(name, validate_only=request.validate_only)

    failures = await alter_each(
        context,
        request.resources,
        alter,
        lambda resource: _only_clears_a_broker(context, resource),
        (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.BROKER_LOGGER),
    )
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, (code, message) in zip(request.resources, failures, strict=True)
        ]
    )


def _only_clears_a_broker(context: Context, resource: AlterConfigsResource) -> bool:
    """The broker that was asked, or with an empty name the defaults of all of them."""
    own = str(context.services.membership.me.broker_id)
    return (
        resource.resource_type == ResourceType.BROKER
        and resource.resource_name in (own, "")
        and all(config.config_operation == AlterOperation.DELETE for config in resource.configs)
    )


def _diskless_value(one: Alteration) -> str | None:
    """None where it is deleted."""
    if one.operation is AlterOperation.DELETE:
        return None
    if one.operation is not AlterOperation.SET or one.value is None:
        raise InvalidConfig(f"Can't {one.operation.name} to key {one.name} because its type is not LIST.")
    return one.value


def _altered(overrides: Mapping[str, str], alterations: Sequence[Alteration]) -> dict[str, str]:
    """The overrides of a group after these."""
    altered = dict(overrides)
    for one in alterations:
        if one.operation is AlterOperation.DELETE:
            altered.pop(one.name, None)
        elif one.operation is AlterOperation.SET and one.value is not None:
            altered[one.name] = one.value.strip()
        else:
            raise GroupUnavailable(ErrorCode.INVALID_CONFIG, f"{cut(one.name)} is no list")
    return altered


def _alterations(resource: AlterConfigsResource) -> list[Alteration]:
    check_named(
        [config.name for config in resource.configs],
        [
            config.name
            for config in resource.configs
            if config.value is None and config.config_operation != AlterOperation.DELETE
        ],
    )
    alterations = []
    for config in resource.configs:
        try:
            operation = AlterOperation(config.config_operation)
        except ValueError:
            raise InvalidTopicRequest(
                f"Unknown operation {config.config_operation} for config {cut(config.name)}"
            ) from None
        alterations.append(Alteration(config.name, operation, config.value))
    return alterations
