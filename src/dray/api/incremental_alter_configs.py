"""IncrementalAlterConfigs (44), versions 0 and 1: set, delete, append to or subtract from overrides.

All changes to one topic are made at once or not at all. A config named twice for one topic, an operation that
is none of the four, or one that lacks its value is an INVALID_REQUEST. Only topics can be altered
(`alterations`).
"""

from __future__ import annotations

from dray.api.alterations import alter_each, check_named
from dray.api.context import Context
from dray.api.handler import handles
from dray.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from dray.topics import Alteration, AlterOperation, InvalidTopicRequest


@handles(IncrementalAlterConfigsRequest, 0, 1)
async def handle(
    context: Context, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    async def alter(resource: AlterConfigsResource) -> None:
        await context.services.topics.alter_config(
            resource.resource_name, _alterations(resource), validate_only=request.validate_only
        )

    failures = await alter_each(context, request.resources, alter)
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
                f"Unknown operation {config.config_operation} for config {config.name}"
            ) from None
        alterations.append(Alteration(config.name, operation, config.value))
    return alterations
