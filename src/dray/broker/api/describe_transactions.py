"""DescribeTransactions (65), version 0: there are none, so each id is one that was not found.

Kafka answers TRANSACTIONAL_ID_NOT_FOUND for an id that nothing was ever written with, and so says the truth
here. Tools ask FindCoordinator first, which says that there are no transactions at all.
"""

from __future__ import annotations

from dray.base.runtime import map_some
from dray.broker.api.shared import Context, handles
from dray.broker.api.shared.checks import DESCRIBE_TRANSACTIONAL_ID, Denial
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)


@handles(DescribeTransactionsRequest, 0, 0, checks={DESCRIBE_TRANSACTIONAL_ID: Denial.RESOURCE})
async def handle(context: Context, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    def state(name: str) -> TransactionState:
        return TransactionState(error_code=_refusal(context, name), transactional_id=name)

    return DescribeTransactionsResponse(transaction_states=await map_some(state, request.transactional_ids))


def _refusal(context: Context, transactional_id: str) -> ErrorCode:
    if not context.may(DESCRIBE_TRANSACTIONAL_ID, transactional_id):
        return DESCRIBE_TRANSACTIONAL_ID.refusal
    return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else ErrorCode.INVALID_REQUEST
