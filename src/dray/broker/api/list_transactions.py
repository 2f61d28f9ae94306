"""ListTransactions (66), versions 0 to 2: there are none.

Bad requests are answered as Kafka does: unknown states are named in the answer, and are no error.

- v2: a pattern. One that is none is an INVALID_REGULAR_EXPRESSION.
"""

from __future__ import annotations

from typing import Final

from dray.broker.api.shared import NO_CHECKS, Context, handles
from dray.broker.groups.coordinator.patterns import fault_of
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

_STATES: Final = frozenset(
    {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    }
)


@handles(ListTransactionsRequest, 0, 2, checks=NO_CHECKS)
async def handle(context: Context, request: ListTransactionsRequest) -> ListTransactionsResponse:
    pattern = request.transactional_id_pattern
    if pattern and await context.services.runtime.in_thread(fault_of, pattern) is not None:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    return ListTransactionsResponse(
        unknown_state_filters=[state for state in request.state_filters if state not in _STATES]
    )
