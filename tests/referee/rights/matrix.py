"""Every API that asks for a right, in every version, as clients that have it in one way or another, and as
clients that lack it. Each case has names of its own, so that none sees what another did."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from dray.broker.api import HANDLERS
from dray.broker.api.shared.checks import Check
from dray.kafka.acls import AclBinding, AclOperation, AclResourceType, PatternType, Permission
from dray.kafka.protocol import ZERO_UUID, Response
from dray.kafka.protocol.messages.fetch import FetchResponse
from tests.referee.rights.clients import CLOSED, SUPER, Clients
from tests.services.authorization_cases import CASES, Case, Place

_SERVED: Final = {handler.api_key: handler for handler in HANDLERS}
IN_ALL_VERSIONS: Final = ("allowed", "none")
"""The other kinds of rights are asked in the last version: what they lead to does not depend on it. `make
soak` asks all of them in all versions."""


_NAMES: Final = ("name", "group_id", "topic_name", "resource_name")


class Client(NamedTuple):
    user: str
    bindings: Sequence[AclBinding]


def slug(case: Case) -> str:
    return case.name.replace(" ", "-")


def place_of(case: Case) -> Place:
    name = f"rights-{slug(case)}"
    return Place(f"{name}-topic", ZERO_UUID, f"{name}-group", f"{name}-transaction")


def clients_of(case: Case) -> dict[str, Client]:
    """By the kind of rights that they have."""
    place = place_of(case)
    all_needs = case.needs

    def binding(check: Check, user: str, **fields: Any) -> AclBinding:
        name = place.name_of(check.resource)
        made = AclBinding(
            check.resource,
            PatternType.LITERAL,
            name,
            f"User:{user}",
            "*",
            check.operation,
            Permission.ALLOW,
        )
        return made._replace(**fields)

    def prefixed(check: Check, user: str, **fields: Any) -> AclBinding:
        name = place.name_of(check.resource)
        is_cluster = check.resource is AclResourceType.CLUSTER
        fields = {"pattern_type": PatternType.PREFIXED, "name": name if is_cluster else name[:-2], **fields}
        return binding(check, user, **fields)

    def any_name(check: Check, user: str) -> AclBinding:
        """The cluster has but one name."""
        return binding(check, user, **({} if check.resource is AclResourceType.CLUSTER else {"name": "*"}))

    kinds: dict[str, Callable[[str], list[AclBinding]]] = {
        "allowed": lambda user: [binding(check, user) for check in all_needs],
        "none": lambda _: [],
        "prefixed": lambda user: [prefixed(check, user) for check in all_needs],
        "any name": lambda user: [any_name(check, user) for check in all_needs],
        "any operation": lambda user: [
            binding(check, user, operation=AclOperation.ALL) for check in all_needs
        ],
        "denied": lambda user: [
            *(binding(check, user) for check in all_needs),
            prefixed(all_needs[0], user, permission=Permission.DENY),
        ],
        "denied all": lambda user: [
            *(binding(check, user) for check in all_needs),
            binding(all_needs[-1], user, permission=Permission.DENY, operation=AclOperation.ALL),
        ],
        "another host": lambda user: [binding(check, user, host="10.0.0.1") for check in all_needs],
        "another operation": lambda user: [
            binding(check, user, operation=AclOperation.TWO_PHASE_COMMIT) for check in all_needs
        ],
    }
    if len(all_needs) > 1:
        for missing in all_needs:
            rest = [check for check in all_needs if check is not missing]
            kinds[f"all but {_named(missing)}"] = lambda user, rest=rest: [  # type: ignore[misc]
                binding(check, user) for check in rest
            ]
    for other in case.instead:
        kinds[f"instead {_named(other)}"] = (
            lambda user, other=other: [  # type: ignore[misc]
                binding(check, user) for check in (other, *all_needs[1:])
            ]
        )
    found = {SUPER: Client(SUPER, [])}
    for number, (kind, bindings) in enumerate(kinds.items()):
        user = f"{slug(case)}-{number}"
        found[kind] = Client(user, bindings(user))
    return found


def _named(check: Check) -> str:
    return f"{check.operation.name} {check.resource.name}"


def all_clients() -> Iterator[Client]:
    for case in CASES:
        yield from clients_of(case).values()


def versions(case: Case, kind: str, api_key: int, *, of_all_kinds: bool) -> Sequence[int]:
    handler = _SERVED[api_key]
    first, last = case.versions
    every = range(max(first, handler.first), min(last, handler.last) + 1)
    return every if of_all_kinds or kind in IN_ALL_VERSIONS else every[-1:]


async def run_case(case: Case, clients: Clients, *, of_all_kinds: bool = False) -> dict[str, Any]:
    """What each kind of client was answered, by kind and version."""
    place = await _find(clients, place_of(case))
    notes: dict[str, Any] = {}
    for kind, client in clients_of(case).items():
        connection = await clients.connect(client.user)
        try:
            for version in versions(case, kind, case.make(place).API_KEY, of_all_kinds=of_all_kinds):
                place = await _find(clients, place)
                if case.prepare is not None:
                    await case.prepare(clients.plain.send, place)
                answer = await clients.ask(connection, case.make(place), version)
                notes[f"{kind}, version {version}"] = noted(clients, place, answer)
                if answer is None:
                    await connection.close()
                    connection = await clients.connect(client.user)
        finally:
            await connection.close()
    return notes


async def _find(clients: Clients, place: Place) -> Place:
    """The case's topic, made again where the last client could delete it."""
    known = {name: topic_id for topic_id, name in clients.plain.topic_names().items()}
    if place.topic not in known or not await clients.is_there(place.topic):
        if place.topic in known:
            clients.plain.forget_topic(place.topic)
        await clients.create(place.topic)
    return place._replace(topic_id=clients.plain.topic_id(place.topic), node=clients.plain.node)


def noted(clients: Clients, place: Place, answer: Response | None) -> Any:
    if answer is None:
        return CLOSED
    found = _without_others(clients.notation.plain(answer), place)
    if isinstance(answer, FetchResponse):
        found["responses"] = _merged(found["responses"])
    return found


def _merged(topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Kafka answers a topic in several pieces where some of its partitions are refused."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for topic in topics:
        whole = found.setdefault((topic["topic_id"], topic["topic"]), {**topic, "partitions": []})
        whole["partitions"] += topic["partitions"]
    for whole in found.values():
        whole["partitions"].sort(key=lambda partition: partition["partition_index"])
    return [found[key] for key in sorted(found)]


def _without_others(noted: Any, place: Place) -> Any:
    """Lists of all topics and groups hold those of other cases too."""
    if isinstance(noted, dict):
        return {name: _without_others(value, place) for name, value in noted.items()}
    if isinstance(noted, list):
        return [_without_others(each, place) for each in noted if not _is_of_another(each, place)]
    return noted


def _is_of_another(entry: Any, place: Place) -> bool:
    if not isinstance(entry, Mapping):
        return False
    name = next((entry[field] for field in _NAMES if entry.get(field)), "")
    return isinstance(name, str) and name.startswith(("rights-", "__", "golden-")) and name not in place
