"""A check that a client may fail: an operation on a kind of resource. `@handles` states for each API which of
these it asks, and what becomes of a request, or of a part of it, that lacks one; a test holds it to that.

They are those of Kafka 4.2 (`KafkaApis`, `ControllerApis`, `AclApis`). A resource is asked about by its name,
before anything is looked up under that name: what a client may not see is answered alike, be it there or not.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from dray.kafka.acls import AclOperation, AclResourceType
from dray.kafka.protocol import ErrorCode


class Denial(Enum):
    """The effect of a failed check on the answer."""

    REQUEST = "the request is refused"
    PARTITION = "each partition is refused"
    TOPIC = "each topic is refused"
    GROUP = "each group is refused"
    RESOURCE = "each resource is refused"
    LEFT_OUT = "what may not be seen is left out"
    FIELD = "the field that needs it is empty"
    OTHERWISE = "another check decides"


class Check(NamedTuple):
    operation: AclOperation
    resource: AclResourceType

    @property
    def refusal(self) -> ErrorCode:
        return _REFUSALS[self.resource]

    @property
    def reason(self) -> str:
        return REASONS[self.refusal]


class NotAllowed(Exception):
    """A check that failed while a part of a request was carried out. The text is for the client."""

    def __init__(self, check: Check, text: str) -> None:
        super().__init__(text)
        self.code = check.refusal


_REFUSALS: Final = {
    AclResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
REASONS: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}

_O = AclOperation

READ_TOPIC: Final = Check(_O.READ, AclResourceType.TOPIC)
WRITE_TOPIC: Final = Check(_O.WRITE, AclResourceType.TOPIC)
CREATE_TOPIC: Final = Check(_O.CREATE, AclResourceType.TOPIC)
DELETE_TOPIC: Final = Check(_O.DELETE, AclResourceType.TOPIC)
ALTER_TOPIC: Final = Check(_O.ALTER, AclResourceType.TOPIC)
DESCRIBE_TOPIC: Final = Check(_O.DESCRIBE, AclResourceType.TOPIC)
DESCRIBE_TOPIC_CONFIGS: Final = Check(_O.DESCRIBE_CONFIGS, AclResourceType.TOPIC)
ALTER_TOPIC_CONFIGS: Final = Check(_O.ALTER_CONFIGS, AclResourceType.TOPIC)

READ_GROUP: Final = Check(_O.READ, AclResourceType.GROUP)
DELETE_GROUP: Final = Check(_O.DELETE, AclResourceType.GROUP)
DESCRIBE_GROUP: Final = Check(_O.DESCRIBE, AclResourceType.GROUP)
DESCRIBE_GROUP_CONFIGS: Final = Check(_O.DESCRIBE_CONFIGS, AclResourceType.GROUP)
ALTER_GROUP_CONFIGS: Final = Check(_O.ALTER_CONFIGS, AclResourceType.GROUP)

CREATE_IN_CLUSTER: Final = Check(_O.CREATE, AclResourceType.CLUSTER)
DELETE_IN_CLUSTER: Final = Check(_O.DELETE, AclResourceType.CLUSTER)
ALTER_CLUSTER: Final = Check(_O.ALTER, AclResourceType.CLUSTER)
DESCRIBE_CLUSTER: Final = Check(_O.DESCRIBE, AclResourceType.CLUSTER)
ACT_FOR_CLUSTER: Final = Check(_O.CLUSTER_ACTION, AclResourceType.CLUSTER)
DESCRIBE_CLUSTER_CONFIGS: Final = Check(_O.DESCRIBE_CONFIGS, AclResourceType.CLUSTER)
ALTER_CLUSTER_CONFIGS: Final = Check(_O.ALTER_CONFIGS, AclResourceType.CLUSTER)
WRITE_IDEMPOTENTLY: Final = Check(_O.IDEMPOTENT_WRITE, AclResourceType.CLUSTER)

WRITE_TRANSACTIONAL_ID: Final = Check(_O.WRITE, AclResourceType.TRANSACTIONAL_ID)
DESCRIBE_TRANSACTIONAL_ID: Final = Check(_O.DESCRIBE, AclResourceType.TRANSACTIONAL_ID)
