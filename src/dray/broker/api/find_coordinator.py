"""FindCoordinator (10), versions 0 to 6: which broker looks after a group.

That is the holder of the group's lease, if it lives, and else the broker that should take it, in the zone of
the client that asks where that has brokers. COORDINATOR_NOT_AVAILABLE where the metadata store cannot be
asked. Transactions have no coordinator here and are refused (`errors` says with which code, and why); other
kinds of key (share groups) are INVALID_REQUEST.

- v4: a request may hold many keys, each answered by itself, and once.
"""

from __future__ import annotations

from typing import Final

from dray.base.runtime import gather_some
from dray.broker.api.api_versions import SOFTWARE
from dray.broker.api.shared import (
    NO_TRANSACTIONS,
    Context,
    handles,
    is_kafkas_admin,
    no_coordinator_of_transactions,
)
from dray.broker.api.shared.checks import DESCRIBE_GROUP, DESCRIBE_TRANSACTIONAL_ID, Denial
from dray.broker.cluster import Broker
from dray.broker.groups.coordinator import GroupUnavailable
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_MANY_FROM: Final = 4
_GROUP: Final = 0
_TRANSACTION: Final = 1
_CHECKS: Final = {_GROUP: DESCRIBE_GROUP, _TRANSACTION: DESCRIBE_TRANSACTIONAL_ID}


@handles(
    FindCoordinatorRequest,
    0,
    6,
    checks={DESCRIBE_GROUP: Denial.GROUP, DESCRIBE_TRANSACTIONAL_ID: Denial.RESOURCE},
)
async def handle(context: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if context.version >= _MANY_FROM:
        keys = dict.fromkeys(request.coordinator_keys)
        found = await gather_some(_find(context, request.key_type, key) for key in keys)
        return FindCoordinatorResponse(coordinators=found)
    one = await _find(context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


async def _find(context: Context, key_type: int, key: str) -> Coordinator:
    check = _CHECKS.get(key_type)
    if check is not None and not context.may(check, key):
        return _failed(key, check.refusal, check.reason)
    if key_type == _TRANSACTION and is_kafkas_admin(context.header.client_id):
        return _broker(context, key, context.services.membership.me)
    if key_type == _TRANSACTION:
        context.logger().info("transactions are not supported", transactional_id=key)
        software = context.connection.state.get(SOFTWARE, "")
        return _failed(key, no_coordinator_of_transactions(context.version, software), NO_TRANSACTIONS)
    if key_type != _GROUP:
        return _failed(key, ErrorCode.INVALID_REQUEST, f"Unknown coordinator key type {key_type}.")
    try:
        broker = await context.services.groups.find_coordinator(key, context.zone)
    except GroupUnavailable as refusal:
        return _failed(key, refusal.error, refusal.message)
    return _broker(context, key, broker)


def _broker(context: Context, key: str, broker: Broker) -> Coordinator:
    listener = broker.at(context.connection.listener)
    return Coordinator(
        key=key, node_id=broker.broker_id, host=listener.host, port=listener.port, error_message=None
    )


def _failed(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)
