"""AlterConfigs (33), versions 0 to 2: the overrides of a topic or a group become what the request says.

Deprecated in Kafka in favour of IncrementalAlterConfigs, and still sent by older tools. A config named twice
for one of them, or without a value, is an INVALID_REQUEST. Only topics and groups can be altered
(`shared/configs`). `diskless.enable` is no override: set to true it switches a linked topic, and not named it
stays what it is (`shared/diskless.py`).
"""

from __future__ import annotations

from dray.broker.api.shared import Context, ResourceType, alter_each, check_named, handles
from dray.broker.api.shared.checks import (
    ALTER_CLUSTER,
    ALTER_CLUSTER_CONFIGS,
    ALTER_GROUP_CONFIGS,
    ALTER_TOPIC_CONFIGS,
    Denial,
)
from dray.broker.api.shared.diskless import DISKLESS, check_diskless
from dray.kafka.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


@handles(
    AlterConfigsRequest,
    0,
    2,
    checks={
        ALTER_TOPIC_CONFIGS: Denial.RESOURCE,
        ALTER_GROUP_CONFIGS: Denial.RESOURCE,
        ALTER_CLUSTER_CONFIGS: Denial.RESOURCE,
        ALTER_CLUSTER: Denial.RESOURCE,
    },
)
async def handle(context: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    async def alter(resource: AlterConfigsResource) -> None:
        check_named(
            [config.name for config in resource.configs],
            [config.name for config in resource.configs if config.value is None],
        )
        if resource.resource_type == ResourceType.GROUP:
            whole = {config.name: (config.value or "").strip() for config in resource.configs}
            await context.services.groups.configs.alter(
                resource.resource_name, lambda _: whole, validate_only=request.validate_only
            )
            return
        name, configs = resource.resource_name, {config.name: config.value for config in resource.configs}
        linked = context.services.linked
        switches = False
        if linked is not None and DISKLESS in configs:
            switches = await check_diskless(context, name, configs.pop(DISKLESS))
        await context.services.topics.replace_config(name, configs, validate_only=request.validate_only)
        if linked is not None and switches:
            await linked.switch(name, validate_only=request.validate_only)

    failures = await alter_each(context, request.resources, alter)
    return AlterConfigsResponse(
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
