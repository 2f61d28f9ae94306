"""DescribeClientQuotas (48), versions 0 and 1: the quotas of the entities that a filter names.

A filter has a component per kind of entity: a name, the default, or any. With `strict`, entities with further
kinds are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dray.base.runtime import cut
from dray.broker.api.shared import Context, handles
from dray.broker.api.shared.checks import DESCRIBE_CLUSTER_CONFIGS, Denial
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from dray.kafka.quotas import KINDS, parts_of

_EXACT: Final = 0
_DEFAULT: Final = 1
_ANY: Final = 2
_MATCHES: Final = {_EXACT: "MATCH_TYPE_EXACT", _DEFAULT: "MATCH_TYPE_DEFAULT", _ANY: "MATCH_TYPE_SPECIFIED"}


@handles(DescribeClientQuotasRequest, 0, 1, checks={DESCRIBE_CLUSTER_CONFIGS: Denial.REQUEST})
async def handle(context: Context, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    refusal = _fault(request.components)
    if not context.may(DESCRIBE_CLUSTER_CONFIGS):
        refusal = DESCRIBE_CLUSTER_CONFIGS.refusal, DESCRIBE_CLUSTER_CONFIGS.reason
    if refusal is not None:
        return DescribeClientQuotasResponse(error_code=refusal[0], error_message=refusal[1], entries=None)
    wanted = {component.entity_type: component for component in request.components}
    return DescribeClientQuotasResponse(
        error_message=None,
        entries=[
            EntryData(
                [EntityData(kind, name) for kind, name in parts.items()],
                [ValueData(key, value) for key, value in sorted(quotas.items())],
            )
            for entity, quotas in context.services.quotas.table.items()
            if _matches(wanted, parts := parts_of(entity), strict=request.strict)
        ],
    )


def _matches(wanted: Mapping[str, ComponentData], parts: Mapping[str, str | None], *, strict: bool) -> bool:
    if strict and len(parts) != len(wanted):
        return False
    return all(
        kind in parts and (component.match_type == _ANY or parts[kind] == component.match)
        for kind, component in wanted.items()
    )


def _fault(components: Sequence[ComponentData]) -> tuple[ErrorCode, str] | None:
    seen: set[str] = set()
    for component in components:
        entity = component.entity_type
        if not entity:
            return ErrorCode.INVALID_REQUEST, "Invalid empty entity type."
        if entity in seen:
            return (
                ErrorCode.INVALID_REQUEST,
                f"Entity type {cut(entity)} cannot appear more than once in the filter.",
            )
        seen.add(entity)
        if entity not in KINDS:
            return ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {cut(entity)}"
        fault = _fault_of_match(component)
        if fault is not None:
            return ErrorCode.INVALID_REQUEST, fault
    if "ip" in seen and len(seen) > 1:
        return (
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user "
            "or clientId filter component.",
        )
    return None


def _fault_of_match(component: ComponentData) -> str | None:
    kind = _MATCHES.get(component.match_type)
    if kind is None:
        return f"Unknown match type {component.match_type}"
    if component.match_type == _EXACT and component.match is None:
        return f"Request specified {kind}, but set match string to null."
    if component.match_type != _EXACT and component.match is not None:
        return f"Request specified {kind}, but also specified a match string."
    return None
