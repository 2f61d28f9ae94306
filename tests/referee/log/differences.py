"""Where Dray answers otherwise than Apache Kafka, on purpose: what it answers instead, and why.

By case, then by the label of the request. Whatever else differs in the answer to that request follows from
the one value that is named here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Difference:
    where: str
    dray: Any
    why: str


PRODUCED = "/responses/0/partition_responses/0/error_code"
OFFSET = "/responses/0/partition_responses/0/base_offset"
APPEND_TIME = "/responses/0/partition_responses/0/log_append_time_ms"

UNSUPPORTED_VERSION = 35
INVALID_REQUEST = 42
UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
UNSUPPORTED_COMPRESSION_TYPE = 76
INVALID_RECORD = 87

OLD_FORMAT = Difference(PRODUCED, UNSUPPORTED_FOR_MESSAGE_FORMAT, "it says what is wrong")
OFFSET_DELTAS = Difference(PRODUCED, INVALID_RECORD, "stored, the offsets would not be dense")
BEYOND_OFFSETS = "Kafka stored batches here that Dray refused"
BAD_FRAME = Difference(PRODUCED, INVALID_RECORD, "Kafka calls the client's fault its own")
BAD_CODEC = Difference(PRODUCED, UNSUPPORTED_COMPRESSION_TYPE, "Kafka calls the client's fault its own")
HALF_A_PRODUCER = Difference(PRODUCED, INVALID_RECORD, "either all of id, epoch and sequence, or none")
DISORDERLY_TAGS = Difference(
    "", "connection closed", "the protocol wants them ascending; Kafka does not look"
)
TOO_MUCH = "more than limits.request_elements; Kafka looks each of them up"
SAME_AS_FIRST = Difference(
    APPEND_TIME,
    -1,
    "a duplicate is answered as the first time; Kafka makes CreateTime look like LogAppendTime",
)

DIFFERENCES: dict[str, dict[str, Difference]] = {
    "produce-to-nowhere": {
        "no partitions": Difference(
            "/responses/0/partition_responses", [], "every topic asked for is answered"
        ),
    },
    "produce-broken-batches": {
        "old format 0": OLD_FORMAT,
        "old format 1": OLD_FORMAT,
        "offset deltas with a gap": OFFSET_DELTAS,
        "offset deltas backwards": OFFSET_DELTAS,
        "bytes behind": Difference(PRODUCED, INVALID_RECORD, "Kafka drops them without a word"),
        "header key is not UTF-8": Difference(PRODUCED, INVALID_RECORD, "no table could hold the key"),
        "what was stored": Difference(OFFSET, 0, BEYOND_OFFSETS),
    },
    "produce-codecs": {
        "not gzip": BAD_FRAME,
        "not snappy": BAD_FRAME,
        "not lz4": BAD_FRAME,
        "not zstd": BAD_FRAME,
        "gzip cut short": BAD_FRAME,
        "codec 5": BAD_CODEC,
        "codec 6": BAD_CODEC,
        "codec 7": BAD_CODEC,
    },
    "produce-forbidden-batches": {
        "transactional": Difference(PRODUCED, INVALID_RECORD, "Dray has no transactions, whoever asks"),
    },
    "produce-transactional-id": {
        "plain batch": Difference(
            PRODUCED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Dray has no transactions, whoever asks"
        ),
    },
    "produce-duplicate-partitions": {
        "the same partition twice": Difference(
            PRODUCED, INVALID_REQUEST, "Kafka keeps one and drops the other without a word; Dray refuses both"
        ),
        "the same topic twice": Difference(OFFSET, 0, "answered as asked; Kafka merges them"),
        "one good, one bad": Difference(OFFSET, 1, BEYOND_OFFSETS),
    },
    "fetch-twice-in-one-request": {
        "the same partition twice": Difference(
            "/responses/0/partitions/1/partition_index",
            0,
            "both are answered; Kafka answers the last",
        ),
    },
    "sequences-repeated": {f"batch {number} again": SAME_AS_FIRST for number in range(2, 7)},
    "sequences-that-wrap": {"again": SAME_AS_FIRST},
    "sequences-that-make-no-sense": {
        "no epoch": HALF_A_PRODUCER,
        "negative producer": HALF_A_PRODUCER,
        "a first one": Difference(OFFSET, 0, BEYOND_OFFSETS),
    },
    "list-offsets-refused": {
        "the same partition twice": Difference(
            "/topics/0/partitions/1/error_code",
            INVALID_REQUEST,
            "each is answered; Kafka answers once",
        ),
    },
    "delete-records-step-by-step": {
        "max timestamp then": Difference(
            "/topics/0/partitions/0/offset", -1, "no record is left; Kafka names one that was deleted"
        ),
    },
    "malformed-frames": {
        "negative array": Difference("", "connection closed", "only -1 is null"),
        "name is not UTF-8": Difference("", "connection closed", "Kafka puts other characters in its place"),
    },
    "tagged-fields": {
        **{
            f"{order} {where}": DISORDERLY_TAGS
            for order in ("descending", "repeated")
            for where in ("in the header", "behind the request")
        },
        "more in the header": Difference("", "connection closed", "a hundred, where Kafka has defined none"),
    },
    "names-again-and-again": {
        "configs twice": Difference("", 1, "a name is answered once"),
    },
    "names-without-end": {
        "20001 of metadata v9": Difference("", "connection closed", TOO_MUCH),
        "20001 of metadata v13": Difference("/error_code", INVALID_REQUEST, TOO_MUCH),
    },
    "create-topics-validate-only": {
        "good": Difference("/topics/0/topic_id", "zero", "no topic, no id"),
    },
    "create-topics-numbers": {
        "2 replicas": Difference("/topics/0/error_code", 0, "the object store replicates: any will do"),
    },
    "elect-leaders": {
        "everything": Difference("/replica_election_results", [], "nothing to tell of any partition"),
    },
    "describe-quorum": {
        f"v{version}": Difference("/error_code", UNSUPPORTED_VERSION, "there is no KRaft quorum")
        for version in range(3)
    },
    "create-topics-configs": {
        "spaces around": Difference("/topics/0/configs/3/value", "1000", "the value as it is understood"),
    },
}
