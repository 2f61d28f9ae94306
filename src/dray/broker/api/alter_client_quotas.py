"""AlterClientQuotas (49), versions 0 and 1: set and take away quotas of users, client ids and addresses.

Each entity is altered or refused by itself. Of one that is named twice the first change is made, and the
answer is an error, as in Kafka; so is the answer to a quota that is named twice, which changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dray.broker.api.shared import Context, handles
from dray.broker.api.shared.checks import ALTER_CLUSTER_CONFIGS, Denial
from dray.broker.security.key_follower import SecurityUnavailable
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
    RequestedEntryData,
)
from dray.kafka.quotas import KINDS, Parts, entity_of, fault_of, fault_of_value, shown, text_of_change

_MOST_CHANGES: Final = 10_000
"""In one request, as in Kafka."""
_TOO_MANY: Final = ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."

Fault = tuple[ErrorCode, str]


@handles(AlterClientQuotasRequest, 0, 1, checks={ALTER_CLUSTER_CONFIGS: Denial.REQUEST})
async def handle(context: Context, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    about = (_about(entry, request.validate_only) for entry in request.entries[:_MOST_CHANGES])
    if not context.may_change(ALTER_CLUSTER_CONFIGS, about):
        return _refused(request, (ALTER_CLUSTER_CONFIGS.refusal, ALTER_CLUSTER_CONFIGS.reason))
    if sum(max(1, len(entry.ops)) for entry in request.entries) > _MOST_CHANGES:
        return _refused(request, _TOO_MANY)
    outcomes: dict[tuple[tuple[str, str | None], ...], EntryData] = {}
    for entry in request.entries:
        parts = _parts(entry)
        entity = tuple(parts.items())
        changes: dict[str, OpData] = {op.key: op for op in entry.ops}
        if entity in outcomes or len(changes) < len(entry.ops):
            fault: Fault | None = (ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {shown(parts)}")
        else:
            fault = await _alter(context, parts, changes, validate_only=request.validate_only)
        outcomes[entity] = _outcome(parts, fault)
    return AlterClientQuotasResponse(entries=list(outcomes.values()))


def _about(entry: RequestedEntryData, validate_only: bool) -> str:
    changes = text_of_change(_parts(entry), {op.key: None if op.remove else op.value for op in entry.ops})
    return f"only checked: {changes}" if validate_only else changes


def _refused(request: AlterClientQuotasRequest, fault: Fault) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(entries=[_outcome(_parts(entry), fault) for entry in request.entries])


async def _alter(
    context: Context, parts: Parts, changes: Mapping[str, OpData], *, validate_only: bool
) -> Fault | None:
    fault = fault_of(parts)
    if fault is not None:
        return ErrorCode.INVALID_REQUEST, fault
    entity = entity_of(parts)
    for op in changes.values():
        fault = None if op.remove else fault_of_value(entity, op.key, op.value)
        if fault is not None:
            return ErrorCode.INVALID_REQUEST, fault
    if validate_only:
        return None
    try:
        wanted = {key: None if op.remove else op.value for key, op in changes.items()}
        await context.services.quotas.alter(entity, wanted)
    except SecurityUnavailable as error:
        return ErrorCode.REQUEST_TIMED_OUT, str(error)
    return None


def _parts(entry: RequestedEntryData) -> dict[str, str | None]:
    """Of a kind that is named twice the last name counts."""
    named = {one.entity_type: one.entity_name for one in entry.entity}
    return {kind: named[kind] for kind in (*KINDS, *named) if kind in named}


def _outcome(parts: Parts, fault: Fault | None) -> EntryData:
    code, message = fault or (ErrorCode.NONE, None)
    return EntryData(code, message, [EntityData(kind, name) for kind, name in parts.items()])
