"""ListConfigResources (74), versions 0 and 1: what has configs.

- v0: only client metrics, of which there are none.
- v1: the types may be named, or all are meant: topics, brokers, their loggers and the groups for which
  something is set. A type that is unknown is UNSUPPORTED_VERSION.
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

_TYPES: Final = frozenset(ResourceType)


@handles(ListConfigResourcesRequest, 0, 1, checks={DESCRIBE_CLUSTER_CONFIGS: Denial.REQUEST})
async def handle(context: Context, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    if not context.may(DESCRIBE_CLUSTER_CONFIGS):
        return ListConfigResourcesResponse(error_code=DESCRIBE_CLUSTER_CONFIGS.refusal)
    asked = (
        (set(request.resource_types) or set(_TYPES)) if context.version > 0 else {ResourceType.CLIENT_METRICS}
    )
    if not asked <= set(_TYPES):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    services = context.services
    named: dict[int, list[str]] = {}
    if ResourceType.TOPIC in asked:
        named[ResourceType.TOPIC] = [topic.name for topic in services.topics.all_cached()]
    for kind in sorted(asked & {ResourceType.BROKER, ResourceType.BROKER_LOGGER}):
        named[kind] = [str(broker.broker_id) for broker in services.membership.brokers()]
    if ResourceType.GROUP in asked:
        named[ResourceType.GROUP] = services.groups.configs.groups()
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind, names in named.items()
            for name in names
        ]
    )
