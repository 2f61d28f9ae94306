"""ListConfigResources (74), versions 0 and 1: what has configs.

Loggers of brokers cannot be configured here, so none is listed.

- v0: only client metrics, of which there are none.
- v1: the types may be named, or all are meant: topics, brokers and the groups for which something is set. A
  type that is unknown is UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from typing import Final

from dray.broker.api.shared import Context, ResourceType, handles
from dray.broker.api.shared.checks import DESCRIBE_CLUSTER_CONFIGS, Denial
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_LOGGERS: Final = 8
_CLIENT_METRICS: Final = 16
_TYPES: Final = (ResourceType.TOPIC, ResourceType.BROKER, _LOGGERS, _CLIENT_METRICS, ResourceType.GROUP)


@handles(ListConfigResourcesRequest, 0, 1, checks={DESCRIBE_CLUSTER_CONFIGS: Denial.REQUEST})
async def handle(context: Context, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    if not context.may(DESCRIBE_CLUSTER_CONFIGS):
        return ListConfigResourcesResponse(error_code=DESCRIBE_CLUSTER_CONFIGS.refusal)
    asked = (set(request.resource_types) or set(_TYPES)) if context.version > 0 else {_CLIENT_METRICS}
    if not asked <= set(_TYPES):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    services = context.services
    named: dict[int, list[str]] = {}
    if ResourceType.TOPIC in asked:
        named[ResourceType.TOPIC] = [topic.name for topic in services.topics.all_cached()]
    if ResourceType.BROKER in asked:
        named[ResourceType.BROKER] = [str(broker.broker_id) for broker in services.membership.brokers()]
    if ResourceType.GROUP in asked:
        named[ResourceType.GROUP] = services.groups.configs.groups()
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind, names in named.items()
            for name in names
        ]
    )
