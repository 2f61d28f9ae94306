"""InitProducerId (22), versions 0 to 5: an id for an idempotent producer, never handed out before.

Epochs start at 0. Transactions are not supported: a transactional id is refused, an empty one is an
INVALID_REQUEST.

- v3: a producer may ask for a new epoch of its id. It gets a new id instead, as it does from Kafka without
  transactions.
- v6: for two-phase commits, and not served.
"""

from __future__ import annotations

from dray.api.shared import TRANSACTIONS_REFUSED, Context, handles
from dray.log.types import LogUnavailable
from dray.protocol import ErrorCode
from dray.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


@handles(InitProducerIdRequest, 0, 5)
async def handle(context: Context, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id == "":
        return _failed(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        context.logger().info("transactions are not supported", transactional_id=request.transactional_id)
        return _failed(TRANSACTIONS_REFUSED)
    try:
        producer_id = await context.services.log.allocate_producer_id()
    except LogUnavailable as error:
        context.logger().warning("no producer id could be given", error=str(error))
        # As Kafka without a block of ids: producers ask again, and do not first look for a coordinator.
        return _failed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _failed(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
