"""CreateAcls, DeleteAcls and DescribeAcls themselves: filters of all kinds, and what is no request."""

from __future__ import annotations

from typing import Any, Final

from dray.kafka.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from dray.kafka.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from dray.kafka.protocol.messages.describe_acls import DescribeAclsRequest
from dray.kafka.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.referee.rights.clients import CLOSED, SUPER, Clients

NAME: Final = "acl-requests"
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN, USER = 2, 3, 4, 5, 6, 7
ALL, READ, WRITE, DESCRIBE, TWO_PHASE_COMMIT = 2, 3, 4, 8, 15
DENY, ALLOW = 2, 3

_GOOD: Final = AclCreation(TOPIC, NAME, LITERAL, "User:alice", "*", READ, ALLOW)


def creation(**fields: Any) -> AclCreation:
    made = AclCreation(*(getattr(_GOOD, name) for name in _GOOD.__slots__))
    for name, value in fields.items():
        setattr(made, name, value)
    return made


CREATIONS: Final = {
    "good": [_GOOD],
    "again": [_GOOD, _GOOD],
    "others": [
        creation(resource_name="acl-req", resource_pattern_type=PREFIXED, permission_type=DENY),
        creation(resource_name="*", host="127.0.0.1", operation=ALL),
        creation(resource_name="*", resource_pattern_type=PREFIXED, principal="User:*"),
        creation(resource_type=GROUP, operation=DESCRIBE),
        creation(resource_type=TRANSACTIONAL_ID, operation=WRITE, principal="User:bob"),
        creation(resource_type=CLUSTER, resource_name="kafka-cluster", operation=ALL, principal="User:bob"),
        creation(resource_type=DELEGATION_TOKEN, operation=DESCRIBE),
        creation(resource_type=USER, resource_name="User:bob", operation=13),
    ],
    "none": [],
    "an operation that the resource does not have": [creation(resource_type=GROUP, operation=WRITE)],
    "number 100": [
        creation(resource_type=100),
        creation(operation=100),
    ],
    "resource any": [creation(resource_type=ANY), creation(resource_name="good", principal="User:carol")],
    "pattern any": [creation(resource_pattern_type=ANY)],
    "pattern match": [creation(resource_pattern_type=MATCH)],
    "operation any": [creation(operation=1)],
    "permission any": [creation(permission_type=1)],
    "no name": [creation(resource_name="")],
    "another cluster": [creation(resource_type=CLUSTER, resource_name="cluster", operation=DESCRIBE)],
    "any cluster": [creation(resource_type=CLUSTER, resource_name="*", operation=DESCRIBE)],
    "a prefix of the cluster": [
        creation(resource_type=CLUSTER, resource_name="kafka", resource_pattern_type=PREFIXED, operation=8)
    ],
    "no principal": [creation(principal="")],
    "no colon": [creation(principal="alice")],
    "no name of the principal": [creation(principal="User:")],
    "another kind of principal": [creation(principal="Group:readers")],
    "a host of no kind": [creation(host="not an address")],
    "a name with unicode": [creation(resource_name="acl-requests-ü\N{SNOWMAN}")],
    "a name with a slash and a NUL": [creation(resource_name="acl-requests/\0")],
    "good and bad": [
        creation(principal="alice"),
        creation(resource_name="good", principal="User:dave"),
        creation(operation=1),
    ],
    "unknown resource": [creation(resource_type=0)],
    "unknown pattern": [creation(resource_pattern_type=0)],
    "unknown operation": [creation(operation=0)],
    "unknown permission": [creation(permission_type=0)],
}

_BROKER: Final = DescribeConfigsResource(4, "1", None)

FILTERS: Final[dict[str, tuple[Any, ...]]] = {
    # resource type, name, pattern, principal, host, operation, permission
    "by name": (TOPIC, NAME, LITERAL, None, None, 1, 1),
    "by name of any pattern": (TOPIC, NAME, ANY, None, None, 1, 1),
    "what matches": (TOPIC, NAME, MATCH, None, None, 1, 1),
    "what matches of any type": (ANY, NAME, MATCH, None, None, 1, 1),
    "what matches a star": (TOPIC, "*", MATCH, "User:alice", None, 1, 1),
    "what matches a longer name": (TOPIC, f"{NAME}-2", MATCH, None, None, 1, 1),
    "prefixed": (TOPIC, "acl-req", PREFIXED, None, None, 1, 1),
    "prefixed by another": (TOPIC, "acl-re", PREFIXED, None, None, 1, 1),
    "a principal": (ANY, None, ANY, "User:bob", None, 1, 1),
    "any principal": (ANY, None, ANY, "User:*", None, 1, 1),
    "a host": (ANY, None, ANY, "User:alice", "127.0.0.1", 1, 1),
    "any host": (TOPIC, NAME, ANY, None, "*", 1, 1),
    "an operation": (ANY, NAME, ANY, None, None, READ, 1),
    "all operations": (ANY, None, ANY, "User:alice", None, ALL, 1),
    "a permission": (TOPIC, None, ANY, "User:alice", None, 1, DENY),
    "the cluster": (CLUSTER, None, ANY, "User:bob", None, 1, 1),
    "nothing": (GROUP, "acl-requests-nothing", LITERAL, None, None, 1, 1),
    "an empty name": (TOPIC, "", LITERAL, None, None, 1, 1),
    "number 100": (100, NAME, LITERAL, None, None, 1, 1),
    "an unknown type": (0, NAME, LITERAL, None, None, 1, 1),
    "an unknown pattern": (TOPIC, NAME, 0, None, None, 1, 1),
    "an unknown operation": (TOPIC, NAME, LITERAL, None, None, 0, 1),
    "an unknown permission": (TOPIC, NAME, LITERAL, None, None, 1, 0),
}
DELETIONS: Final[dict[str, list[str]]] = {
    "two that match the same": ["by name", "what matches"],
    "none": ["nothing"],
    "a principal": ["a principal"],
    "no request": ["by name", "an unknown type"],
}


async def run(clients: Clients) -> dict[str, Any]:
    notes: dict[str, Any] = {}
    made: set[tuple[Any, ...]] = set()
    connection = await clients.connect(SUPER)

    async def ask(label: str, request: Any, version: int) -> Any:
        nonlocal connection
        answer = await clients.ask(connection, request, version)
        notes[label] = CLOSED if answer is None else clients.notation.plain(answer)
        if answer is None:
            await connection.close()
            connection = await clients.connect(SUPER)
        return answer

    for label, creations in CREATIONS.items():
        answer = await ask(f"create: {label}", CreateAclsRequest(creations=creations), 3)
        for each, result in zip(creations, () if answer is None else answer.results, strict=False):
            if result.error_code == 0:
                made.add(tuple(getattr(each, name) for name in each.__slots__))
    await clients.until_acls(clients.created + len(made))
    for label, parts in FILTERS.items():
        for version in (1, 3) if label == "prefixed" else (3,):
            await ask(f"describe: {label}, version {version}", DescribeAclsRequest(*parts), version)
    for label, filters in DELETIONS.items():
        wanted = [DeleteAclsFilter(*FILTERS[each]) for each in filters]
        await ask(f"delete: {label}", DeleteAclsRequest(filters=wanted), 3)
    answer = await clients.ask(connection, DescribeConfigsRequest([_BROKER], include_synonyms=True), 4)
    notes["configs of the authorizer"] = _configs(answer)
    await connection.close()
    return notes


def _configs(answer: Any) -> list[Any]:
    """Kafka's broker has settings of its listeners too, which Dray has in other places."""
    return [
        [
            each.name,
            each.value,
            each.read_only,
            each.is_sensitive,
            each.config_source,
            each.config_type,
            [[one.name, one.value, one.source] for one in each.synonyms],
        ]
        for each in sorted(answer.results[0].configs, key=lambda each: each.name)
        if each.name in ("authorizer.class.name", "super.users", "allow.everyone.if.no.acl.found")
    ]
