"""Quotas through Kafka's APIs: entities as a name by the kind of entity, None for the default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dray.client.connection import Caller
from dray.client.errors import check
from dray.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    RequestedEntryData,
)
from dray.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from dray.security.quotas.entities import Parts

_EXACT, _DEFAULT = 0, 1


async def list_quotas(caller: Caller, wanted: Parts) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    """Those of all entities that have these names, and perhaps further ones."""
    components = [
        ComponentData(kind, _DEFAULT if name is None else _EXACT, name) for kind, name in wanted.items()
    ]
    response = await caller.request(DescribeClientQuotasRequest(components))
    check("list quotas", response.error_code, response.error_message)
    return [
        (
            {one.entity_type: one.entity_name for one in entry.entity},
            {one.key: one.value for one in entry.values},
        )
        for entry in response.entries or ()
    ]


async def alter_quotas(
    caller: Caller,
    changes: Sequence[tuple[Parts, Mapping[str, float | None]]],
    *,
    validate_only: bool = False,
) -> None:
    """None takes a quota away."""
    entries = [
        RequestedEntryData(
            [EntityData(kind, name) for kind, name in entity.items()],
            [OpData(key, value or 0.0, value is None) for key, value in quotas.items()],
        )
        for entity, quotas in changes
    ]
    response = await caller.request(AlterClientQuotasRequest(entries, validate_only))
    for entry in response.entries:
        check("alter quotas", entry.error_code, entry.error_message)
