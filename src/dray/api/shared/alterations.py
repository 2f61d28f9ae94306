"""What both ways to alter configs have in common: one resource at a time, only topics and groups, and each
config of one once and with a value.

A broker's configuration is set where it is started and read-only here; other resources do not exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from dray.api.shared.checks import ALTER_CLUSTER_CONFIGS, ALTER_GROUP_CONFIGS, ALTER_TOPIC_CONFIGS, Check
from dray.api.shared.configs import ResourceType
from dray.api.shared.context import Context
from dray.api.shared.errors import topic_error
from dray.api.shared.partitions import repeated
from dray.groups.coordinator import GroupUnavailable
from dray.protocol import ErrorCode
from dray.security.acls.model import CLUSTER_NAME
from dray.topics import InvalidTopicRequest, TopicError, TopicsUnavailable

_CHECKS: Final[Mapping[int, Check]] = {
    ResourceType.TOPIC: ALTER_TOPIC_CONFIGS,
    ResourceType.GROUP: ALTER_GROUP_CONFIGS,
    **dict.fromkeys(ResourceType.of_cluster(), ALTER_CLUSTER_CONFIGS),
}


class Resource(Protocol):
    resource_type: int
    resource_name: str


ResourceKind = TypeVar("ResourceKind", bound=Resource)


async def alter_each(
    context: Context,
    resources: Sequence[ResourceKind],
    alter: Callable[[ResourceKind], Awaitable[None]],
    changes_nothing: Callable[[ResourceKind], bool] = lambda _: False,
) -> list[tuple[ErrorCode, str | None]]:
    """The code and message of each resource, in their order. `changes_nothing`: what may also be asked of a
    resource that cannot be altered."""
    twice = repeated((resource.resource_type, resource.resource_name) for resource in resources)

    async def one(resource: ResourceKind) -> tuple[ErrorCode, str | None]:
        try:
            if (resource.resource_type, resource.resource_name) in twice:
                raise InvalidTopicRequest("Each resource must appear at most once.")
            check = _CHECKS.get(resource.resource_type)
            name = CLUSTER_NAME if check is ALTER_CLUSTER_CONFIGS else resource.resource_name
            about = f"configs of {resource.resource_name or 'all brokers'}" if name == CLUSTER_NAME else ""
            if check is not None and not context.may(check, name, about=about):
                return check.refusal, check.reason
            if not changes_nothing(resource):
                _check_alterable(resource)
                await alter(resource)
        except GroupUnavailable as refusal:
            return refusal.error, refusal.message
        except TopicError as error:
            if isinstance(error, TopicsUnavailable):
                context.logger().warning("configs were not altered", error=str(error))
            return topic_error(error), str(error)
        return ErrorCode.NONE, None

    return list(await asyncio.gather(*(one(resource) for resource in resources)))


def check_named(names: Collection[str], without_value: Collection[str]) -> None:
    """Check the configs of one resource: none is named twice, and none lacks a value that it needs."""
    if twice := repeated(names):
        raise InvalidTopicRequest(f"Error due to duplicate config keys: {', '.join(sorted(twice))}")
    if without_value:
        raise InvalidTopicRequest(f"Null value not supported for: {', '.join(without_value)}")


def _check_alterable(resource: Resource) -> None:
    if resource.resource_type == ResourceType.BROKER:
        raise InvalidTopicRequest("A broker's configs are set where it is started and cannot be altered.")
    if resource.resource_type not in (ResourceType.TOPIC, ResourceType.GROUP):
        raise InvalidTopicRequest(f"Unsupported resource type: {resource.resource_type}")
    if not resource.resource_name:
        raise InvalidTopicRequest("A resource without a name cannot be altered.")
