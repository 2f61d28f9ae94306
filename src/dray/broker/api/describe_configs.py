"""DescribeConfigs (32), versions 1 to 4: the configs of topics, of groups and of this broker, and the levels
of its loggers (`shared/loggers`).

- A topic shows every config it could set, with its effective value and where that comes from, and with its
  synonyms where they are asked for. One that is linked to another cluster also shows `diskless.enable`
  (`shared/diskless.py`).
- A broker shows every config that a Kafka broker has: its own configuration, what topics get from it by
  default, and Kafka's defaults for the rest. All of that is read-only, because it is set where the broker is
  started. Only a broker itself can show it (another's id is an INVALID_REQUEST, as in Kafka); the
  cluster-wide defaults, asked for with an empty name, are empty.
- A group, be there one or not, shows what may be set for it alone.
- Other resources are an INVALID_REQUEST.
- v3: the documentation of a config, where it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from dray.base.runtime import cut
from dray.broker.api.shared import (
    Check,
    Context,
    ResourceType,
    Routes,
    describe_broker_configs,
    describe_config,
    describe_group_configs,
    handles,
    topic_error,
)
from dray.broker.api.shared.checks import (
    DESCRIBE_CLUSTER_CONFIGS,
    DESCRIBE_GROUP_CONFIGS,
    DESCRIBE_TOPIC_CONFIGS,
    Denial,
)
from dray.broker.api.shared.configs import unsupported
from dray.broker.api.shared.diskless import DISKLESS, describe_diskless
from dray.broker.api.shared.loggers import describe_loggers
from dray.broker.groups.coordinator import GroupUnavailable
from dray.broker.topics import CONFIGS, Topic, TopicError
from dray.broker.topics.names import check_name
from dray.kafka.acls import CLUSTER_NAME
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

_AT_A_TIME: Final = 32
"""A resource has some fifty configs, each with its synonyms."""

_CHECKS: Final[Mapping[int, Check]] = {
    ResourceType.TOPIC: DESCRIBE_TOPIC_CONFIGS,
    ResourceType.GROUP: DESCRIBE_GROUP_CONFIGS,
    **dict.fromkeys(ResourceType.of_cluster(), DESCRIBE_CLUSTER_CONFIGS),
}


@handles(
    DescribeConfigsRequest,
    1,
    4,
    checks={
        DESCRIBE_TOPIC_CONFIGS: Denial.RESOURCE,
        DESCRIBE_GROUP_CONFIGS: Denial.RESOURCE,
        DESCRIBE_CLUSTER_CONFIGS: Denial.RESOURCE,
    },
)
async def handle(context: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    once = {
        (one.resource_type, one.resource_name, tuple(one.configuration_keys or ())): one
        for one in request.resources
    }
    work = (_describe(context, request, one) for one in once.values())
    return DescribeConfigsResponse(results=await context.large.gather(work, _AT_A_TIME))


async def _describe(
    context: Context, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_message="", resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    check = _CHECKS.get(resource.resource_type)
    name = CLUSTER_NAME if check is DESCRIBE_CLUSTER_CONFIGS else resource.resource_name
    if check is not None and not context.may(check, name):
        result.error_code, result.error_message = check.refusal, check.reason
        return result
    keys = resource.configuration_keys

    def wanted(name: str) -> bool:
        return not keys or name in keys

    match resource.resource_type:
        case ResourceType.TOPIC:
            await _describe_topic(context, request, result, wanted)
        case ResourceType.BROKER:
            _describe_broker(context, request, result, wanted)
        case ResourceType.BROKER_LOGGER:
            _describe_loggers(context, result, wanted)
        case ResourceType.GROUP:
            await _describe_group(context, request, result, wanted)
        case other:
            result.error_code = ErrorCode.INVALID_REQUEST
            result.error_message = unsupported(other)
    return result


async def _describe_topic(
    context: Context,
    request: DescribeConfigsRequest,
    result: DescribeConfigsResult,
    wanted: Callable[[str], bool],
) -> None:
    topics = context.services.topics
    try:
        check_name(result.resource_name)
        topic = await topics.refresh(result.resource_name)
    except TopicError as error:
        result.error_code, result.error_message = topic_error(error), str(error)
        return
    if topic is None:
        result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return
    result.configs = [
        describe_config(
            definition,
            topic,
            topics.options.defaults,
            synonyms=request.include_synonyms,
            documentation=request.include_documentation,
        )
        for name, definition in sorted(CONFIGS.items())
        if wanted(name)
    ]
    if wanted(DISKLESS):
        await _add_diskless(context, request, result, topic)


async def _add_diskless(
    context: Context, request: DescribeConfigsRequest, result: DescribeConfigsResult, topic: Topic
) -> None:
    try:
        found = await describe_diskless(
            context,
            topic,
            synonyms=request.include_synonyms,
            documentation=request.include_documentation,
        )
    except TopicError as error:
        result.error_code, result.error_message, result.configs = topic_error(error), str(error), []
        return
    if found is not None:
        result.configs = [found if one.name == DISKLESS else one for one in result.configs]


async def _describe_group(
    context: Context,
    request: DescribeConfigsRequest,
    result: DescribeConfigsResult,
    wanted: Callable[[str], bool],
) -> None:
    if not result.resource_name:
        result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, "Group name must not be empty."
        return
    configs = context.services.groups.configs
    try:
        overrides = await configs.read(result.resource_name)
    except GroupUnavailable as refusal:
        result.error_code, result.error_message = refusal.error, refusal.message
        return
    described = describe_group_configs(
        configs.effective(overrides), overrides, synonyms=request.include_synonyms
    )
    result.configs = [one for one in described if wanted(one.name)]


def _describe_broker(
    context: Context,
    request: DescribeConfigsRequest,
    result: DescribeConfigsResult,
    wanted: Callable[[str], bool],
) -> None:
    own = str(context.services.membership.me.broker_id)
    if not result.resource_name:
        return
    if result.resource_name != own:
        result.error_code = ErrorCode.INVALID_REQUEST
        result.error_message = (
            f"Unexpected broker id, expected {own} or empty string, but received {cut(result.resource_name)}"
        )
        return
    settings = {
        **_listeners(context),
        **context.services.settings.broker_configs,
        "broker.id": own,
        "node.id": own,
        "default.replication.factor": str(Routes(context).replication_factor(None)),
        "log.dirs": context.services.settings.log_dir,
    }
    described = describe_broker_configs(
        settings,
        context.services.topics.options.defaults,
        synonyms=request.include_synonyms,
        documentation=request.include_documentation,
    )
    result.configs = [one for one in described if wanted(one.name)]


def _describe_loggers(context: Context, result: DescribeConfigsResult, wanted: Callable[[str], bool]) -> None:
    try:
        found = describe_loggers(context, result.resource_name)
    except TopicError as error:
        result.error_code, result.error_message = topic_error(error), str(error)
        return
    result.configs = [one for one in found if wanted(one.name)]


def _listeners(context: Context) -> dict[str, str]:
    """The listeners as clients see them, with the real port where the system chose it."""
    listeners = context.services.membership.me.listeners
    hosts = [f"[{one.host}]" if ":" in one.host else one.host for one in listeners]
    return {
        "advertised.listeners": ",".join(
            f"{one.name}://{host}:{one.port}" for one, host in zip(listeners, hosts, strict=True)
        ),
        "listener.security.protocol.map": ",".join(f"{one.name}:PLAINTEXT" for one in listeners),
    }
