"""InitProducerId (22), versions 0 to 5: an id for an idempotent producer, never handed out before.

Epochs start at 0. Transactions are not supported: a transactional id is refused, an empty one is an
INVALID_REQUEST.

- v3: a producer may ask for a new epoch of its id. It gets a new id instead, as it does from Kafka without
  transactions.
- v6: for two-phase commits, and not served.
"""

from __future__ import annotations

from dray.broker.api.shared import TRANSACTIONS_REFUSED, Check, Context, handles, is_kafkas_admin
from dray.broker.api.shared.checks import WRITE_IDEMPOTENTLY, WRITE_TOPIC, WRITE_TRANSACTIONAL_ID, Denial
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from dray.log.types import LogUnavailable


@handles(
    InitProducerIdRequest,
    0,
    5,
    checks={
        WRITE_TRANSACTIONAL_ID: Denial.REQUEST,
        WRITE_IDEMPOTENTLY: Denial.REQUEST,
        WRITE_TOPIC: Denial.OTHERWISE,
    },
)
async def handle(context: Context, request: InitProducerIdRequest) -> InitProducerIdResponse:
    refused = _refused(context, request.transactional_id)
    if refused is not None:
        return _failed(refused.refusal)
    if request.transactional_id == "":
        return _failed(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        if is_kafkas_admin(context.header.client_id):
            return _failed(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        context.logger().info("transactions are not supported", transactional_id=request.transactional_id)
        return _failed(TRANSACTIONS_REFUSED)
    try:
        producer_id = await context.services.log.allocate_producer_id()
    except LogUnavailable as error:
        context.logger().warning("no producer id could be given", error=str(error))
        # As Kafka without a block of ids: producers ask again, and do not first look for a coordinator.
        return _failed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _refused(context: Context, transactional_id: str | None) -> Check | None:
    """A client that may write to some topic may do so idempotently: producers do that unasked."""
    if transactional_id is not None:
        return None if context.may(WRITE_TRANSACTIONAL_ID, transactional_id) else WRITE_TRANSACTIONAL_ID
    if context.sees(WRITE_IDEMPOTENTLY) or context.may_on_some(WRITE_TOPIC):
        return None
    return WRITE_IDEMPOTENTLY


def _failed(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
