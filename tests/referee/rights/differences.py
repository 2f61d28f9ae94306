"""Where Dray answers otherwise than Apache Kafka, on purpose: by case and by the place in the answer, what it
answers and why."""

from __future__ import annotations

from typing import Any, Final, NamedTuple


class Difference(NamedTuple):
    dray: Any
    why: str


INVALID_REQUEST: Final = 42
UNSUPPORTED_VERSION: Final = 35

_NO_TRANSACTIONS: Final = "there are no transactions, for whoever may"
_ITS_OWN_FAULT: Final = (
    "Kafka calls the client's fault its own (UNKNOWN_SERVER_ERROR), and creates none of the request's ACLs"
)

DIFFERENCES: Final[dict[str, dict[str, list[Difference]]]] = {
    "api-coordinator-of-transactions": {
        "/coordinators/0/error_code": [Difference(UNSUPPORTED_VERSION, _NO_TRANSACTIONS)],
        "/coordinators/0/node_id": [Difference(-1, _NO_TRANSACTIONS)],
    },
    "api-quorum": {"/error_code": [Difference(UNSUPPORTED_VERSION, "there is no KRaft quorum")]},
    "api-alter-configs-of-a-broker": {
        "/responses/0/error_code": [
            Difference(INVALID_REQUEST, "a broker's configs are set where it is started")
        ],
    },
    "acls": {
        "/results/0/error_code": [Difference(0, _ITS_OWN_FAULT), Difference(INVALID_REQUEST, _ITS_OWN_FAULT)],
        "/results/1/error_code": [Difference(INVALID_REQUEST, _ITS_OWN_FAULT)],
        "/results/2/error_code": [Difference(INVALID_REQUEST, _ITS_OWN_FAULT)],
    },
}
