"""Quotas of users, client ids and addresses: altered, described and refused.

Each case takes away what it set: the server is the other cases' as well.
"""

from __future__ import annotations

import asyncio
from typing import Any

from dray.kafka.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    OpData,
    RequestedEntryData,
)
from dray.kafka.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from tests.referee.cases import case
from tests.referee.session import SECONDS, Session

EXACT, DEFAULT, ANY = 0, 1, 2
USER, CLIENT = "referee-quota-user", "referee-quota-client"
Entity = dict[str, str | None]


def change(entity: Entity, **ops: float | None) -> RequestedEntryData:
    return RequestedEntryData(
        [EntityData(kind, name) for kind, name in entity.items()],
        [OpData(key, value or 0.0, value is None) for key, value in ops.items()],
    )


async def alter(
    session: Session, label: str, *changes: RequestedEntryData, validate_only: bool = False, version: int = 1
) -> None:
    """Kafka's answers come in the order of a hash map. Their texts are compared as well: tools print them."""
    answer = await session.ask(label, AlterClientQuotasRequest(list(changes), validate_only), version)
    session.notes[label]["entries"].sort(key=str)
    session.notes[label]["texts"] = sorted(str(entry.error_message) for entry in answer.entries)


async def describe(
    session: Session,
    label: str,
    *components: tuple[str, int, str | None],
    strict: bool = False,
    version: int = 1,
) -> None:
    asked = [ComponentData(entity, kind, name) for entity, kind, name in components]
    await session.ask(label, DescribeClientQuotasRequest(asked, strict), version)
    entries = session.notes[label].get("entries", [])  # none where the request is refused
    for entry in entries:
        entry["values"].sort(key=str)
    entries.sort(key=str)


async def settled(session: Session, label: str, *components: tuple[str, int, str | None], count: int) -> None:
    """Once as many entities are shown: Kafka answers an alteration before its broker knows of it."""
    asked = DescribeClientQuotasRequest([ComponentData(*one) for one in components], False)
    async with asyncio.timeout(SECONDS):
        answer: Any = await session.send(asked, 1)
        while len(answer.entries) != count:
            await asyncio.sleep(0.05)
            answer = await session.send(asked, 1)
    await describe(session, label, *components)


@case
async def alter_client_quotas(session: Session) -> None:
    await alter(session, "nothing", version=0)
    await alter(session, "nothing, v1")
    both: Entity = {"user": USER, "client-id": CLIENT}
    await alter(
        session,
        "several entities",
        change({"user": USER}, producer_byte_rate=1e9, consumer_byte_rate=2e9),
        change(both, request_percentage=150.5, controller_mutation_rate=2.5),
        change({"user": USER, "client-id": None}, producer_byte_rate=3e9),
        change({"client-id": CLIENT}, controller_mutation_rate=1000.0),
        change({"ip": "203.0.113.7"}, connection_creation_rate=100.0),
        version=0,
    )
    await settled(session, "of the user", ("user", EXACT, USER), count=3)
    await describe(session, "of the user, v0", ("user", EXACT, USER), version=0)
    await describe(session, "of the user alone", ("user", EXACT, USER), strict=True)
    await describe(session, "of both", ("user", EXACT, USER), ("client-id", EXACT, CLIENT))
    await describe(session, "user and default client", ("user", EXACT, USER), ("client-id", DEFAULT, None))
    await describe(session, "user and any client", ("user", EXACT, USER), ("client-id", ANY, None))
    await describe(session, "of the client", ("client-id", EXACT, CLIENT))
    await describe(session, "of the client alone", ("client-id", EXACT, CLIENT), strict=True)
    await describe(session, "of the address", ("ip", EXACT, "203.0.113.7"), strict=True)
    await describe(session, "of nobody", ("user", EXACT, "referee-nobody"))
    await alter(session, "validated", change({"user": USER}, producer_byte_rate=1.0), validate_only=True)
    await alter(
        session,
        "over it, and away",
        change({"user": USER}, producer_byte_rate=5e9, consumer_byte_rate=None),
        change(both, request_percentage=None, controller_mutation_rate=None),
    )
    await settled(session, "then", ("user", EXACT, USER), count=2)
    await alter(
        session,
        "all away",
        change({"user": USER}, producer_byte_rate=None),
        change({"user": USER, "client-id": None}, producer_byte_rate=None),
        change({"client-id": CLIENT}, controller_mutation_rate=None),
        change({"ip": "203.0.113.7"}, connection_creation_rate=None),
    )
    await alter(session, "away again", change({"user": USER}, producer_byte_rate=None, unheard_of=None))
    await settled(session, "nothing left", ("user", EXACT, USER), count=0)


@case
async def client_quotas_that_are_refused(session: Session) -> None:
    rate = {"producer_byte_rate": 1e9}
    for label, bad in {
        "no entity": change({}, **rate),
        "unknown entity": change({"planet": "mars"}, **rate),
        "no name": change({"user": ""}, **rate),
        "no client id": change({"client-id": ""}, **rate),
        "no address": change({"ip": ""}, connection_creation_rate=1.0),
        "a user at an address": change({"user": USER, "ip": "203.0.113.7"}, connection_creation_rate=1.0),
        "not an address": change({"ip": "no such host"}, connection_creation_rate=1.0),
        "unknown key": change({"user": USER}, unheard_of=1.0),
        "an address' key": change({"user": USER}, connection_creation_rate=1.0),
        "a client's key": change({"ip": "203.0.113.7"}, **rate),
        "zero": change({"user": USER}, producer_byte_rate=0.0),
        "negative": change({"user": USER}, request_percentage=-1.0),
        "a fraction": change({"user": USER}, producer_byte_rate=1.5),
        "too large": change({"user": USER}, consumer_byte_rate=1e20),
        "too many connections": change({"ip": "203.0.113.7"}, connection_creation_rate=3e9),
        "a fraction of a connection": change({"ip": "203.0.113.7"}, connection_creation_rate=0.5),
    }.items():
        await alter(session, label, bad, validate_only=True)
        await alter(session, f"{label}, beside a good one", bad, change({"user": USER}), version=0)
    await alter(session, "the same quota twice", twice(RequestedEntryData([EntityData("user", USER)])))
    await alter(
        session,
        "the same entity twice",
        change({"user": USER}, unheard_of=1.0),
        change({"user": USER}, producer_byte_rate=1e9),
    )
    await alter(
        session,
        "both twice",
        change({"client-id": CLIENT, "user": USER}),
        change({"user": USER, "client-id": CLIENT}),
    )
    for label, components in {
        "address and user": (("ip", ANY, None), ("user", ANY, None)),
        "default, with a name": (("user", DEFAULT, "x"),),
    }.items():
        await describe(session, label, *components)
    await settled(session, "nothing of it", ("user", EXACT, USER), count=0)


def twice(entry: RequestedEntryData) -> RequestedEntryData:
    entry.ops = [OpData("producer_byte_rate", 1e9), OpData("producer_byte_rate", 1e9)]
    return entry
