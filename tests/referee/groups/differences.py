"""Where Dray answers about groups otherwise than Apache Kafka, on purpose: what it answers instead, and why.

By case, then by the label of the request. Whatever else differs in the answer to that request follows from
the one value that is named here. Not compared at all: throttle times, addresses, and the texts of errors.
"""

from __future__ import annotations

from tests.referee.log.differences import Difference

UNKNOWN_MEMBER_ID = 25
INCONSISTENT_GROUP_PROTOCOL = 23
INVALID_REQUEST = 42
GROUP_ID_NOT_FOUND = 69
INVALID_REGULAR_EXPRESSION = 128

TOO_LARGE_TO_STORE = "refused at once; Kafka takes the member, and its syncs fail with UNKNOWN_SERVER_ERROR"
NOTHING_WRITTEN = "a refused join leaves nothing behind; Kafka keeps an empty group of it"

DIFFERENCES: dict[str, dict[str, Difference]] = {
    "classic-member-joins-consumers": {
        "a classic member, for an id": Difference(
            "/error_code",
            INCONSISTENT_GROUP_PROTOCOL,
            "groups are converted when they are empty; Kafka also lets members of both protocols mix",
        ),
    },
    "commits-that-name-what-is-not-there": {
        "no partitions": Difference("/topics/0/partitions", [], "every topic asked for is answered"),
    },
    "configs-of-a-group": {
        "an operation that is none": Difference(
            "/responses/0/error_code", INVALID_REQUEST, "Kafka fails with UNKNOWN_SERVER_ERROR"
        ),
        "everything there is": Difference(
            "/results/0/configs/1/name",
            "consumer.session.timeout.ms",
            "there are no share groups and no groups of Streams here, and so none of their configs",
        ),
    },
    "consumer-offsets": {
        "no member fetching, an epoch": Difference(
            "/groups/0/error_code", UNKNOWN_MEMBER_ID, "Kafka fails with UNKNOWN_SERVER_ERROR"
        ),
    },
    "groups-named-again-and-again": {
        f"{what} of 2": Difference("", 1, "a name is answered once")
        for what in ("described", "described as consumers", "coordinators", "offsets")
    },
    "members-that-say-much": {
        label: difference
        for size in (1_100_000, 5_000_000)
        for label, difference in (
            (f"join with {size}", Difference("", INVALID_REQUEST, TOO_LARGE_TO_STORE)),
            (f"sync with {size}", Difference("", UNKNOWN_MEMBER_ID, TOO_LARGE_TO_STORE)),
        )
    },
    "patterns-that-are-long": {
        "a pattern of 1001": Difference("/error_code", INVALID_REGULAR_EXPRESSION, "Kafka has no bound"),
        "leaves 1001": Difference("/error_code", GROUP_ID_NOT_FOUND, "nobody joined"),
    },
    "join-refused": {
        "nothing came of it": Difference("/groups/0/group_state", "Dead", NOTHING_WRITTEN),
        "nothing is listed": Difference("/groups", [], NOTHING_WRITTEN),
    },
}
