"""DescribeClientQuotas (48), versions 0 and 1: there are none. What Kafka refuses is refused alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dray.api.shared import Context, handles
from dray.api.shared.checks import DESCRIBE_CLUSTER_CONFIGS, Denial
from dray.protocol import ErrorCode
from dray.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

_EXACT: Final = 0
_DEFAULT: Final = 1
_ANY: Final = 2
_ENTITIES: Final = frozenset({"user", "client-id", "ip"})


@handles(DescribeClientQuotasRequest, 0, 1, checks={DESCRIBE_CLUSTER_CONFIGS: Denial.REQUEST})
async def handle(context: Context, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    refusal = _fault(request.components)
    if not context.may(DESCRIBE_CLUSTER_CONFIGS):
        refusal = DESCRIBE_CLUSTER_CONFIGS.refusal, DESCRIBE_CLUSTER_CONFIGS.reason
    if refusal is not None:
        return DescribeClientQuotasResponse(error_code=refusal[0], error_message=refusal[1], entries=None)
    return DescribeClientQuotasResponse(error_message=None)


def _fault(components: Sequence[ComponentData]) -> tuple[ErrorCode, str] | None:
    seen: set[str] = set()
    for component in components:
        entity = component.entity_type
        if not entity:
            return ErrorCode.INVALID_REQUEST, "Unexpected empty filter component entity type"
        if entity in seen:
            return (
                ErrorCode.INVALID_REQUEST,
                f"Entity type {entity} cannot appear more than once in the filter",
            )
        seen.add(entity)
        if entity not in _ENTITIES:
            return ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {entity}"
        if component.match_type == _EXACT and component.match is None:
            return (
                ErrorCode.INVALID_REQUEST,
                "Request specified MATCH_TYPE_EXACT, but set match string to null.",
            )
        if component.match_type in (_DEFAULT, _ANY) and component.match is not None:
            return ErrorCode.INVALID_REQUEST, "The match string must be null for this match type."
        if component.match_type not in (_EXACT, _DEFAULT, _ANY):
            return ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}"
    if "ip" in seen and len(seen) > 1:
        return ErrorCode.INVALID_REQUEST, "An ip filter component cannot be used with others."
    return None
