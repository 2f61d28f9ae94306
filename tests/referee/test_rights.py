"""Dray allows and refuses as Apache Kafka's StandardAuthorizer does, API by API and field by field. Kafka's
side is recorded, as in `test_referee.py`; that it says so still, `make soak` sees (half a minute)."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dray.base.runtime import SystemRuntime
from tests.referee.comparison import differences
from tests.referee.recording import record
from tests.referee.rights import acl_requests, matrix, mixed
from tests.referee.rights.clients import PASSWORD, SUPER, Clients
from tests.referee.rights.differences import DIFFERENCES
from tests.services.authorization_cases import CASES
from tests.services.dray import DrayProcess
from tests.services.kafka import KafkaProcess
from tests.services.maven import require_kafka_jars
from tests.services.process import free_port
from tests.services.target import ON_KAFKA

RECORDINGS = Path(__file__).parents[1] / "fixtures" / "rights"
RECORD = os.environ.get("DRAY_RECORD") == "1"

USERS = sorted({SUPER, *(client.user for client in matrix.all_clients()), *mixed.CLIENTS})
BINDINGS = [
    *(binding for client in matrix.all_clients() for binding in client.bindings),
    *(binding for bindings in mixed.CLIENTS.values() for binding in bindings),
]
Addresses = tuple[str, str]


@pytest.fixture
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    require_kafka_jars()
    secure = f"127.0.0.1:{free_port()}"
    plain, controller = free_port(), free_port()
    users = " ".join(f'user_{name}="{PASSWORD}"' for name in USERS)
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SECURE://{secure},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},SECURE://{secure}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain."
        f"PlainLoginModule required {users};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{SUPER};User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "false",
        # The records are years old: retention must not look at them while we do.
        "log.initial.task.delay.ms": "3600000",
        "auto.create.topics.enable": "false",
    }
    server = KafkaProcess(tmp_path_factory.mktemp("rights-kafka"), settings)
    server.port = plain
    with server:
        yield server.bootstrap, secure


@pytest.fixture
def dray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Addresses]:
    secure = f"127.0.0.1:{free_port()}"
    listener = {"address": secure, "protocol": "SASL_PLAINTEXT", "mechanisms": ["PLAIN"]}
    settings = {
        "DRAY_BROKER__LISTENERS": json.dumps({"SECURE": listener}),
        "DRAY_BROKER__ID": "1",
        "DRAY_SECURITY__AUTHORIZATION": "acls",
        "DRAY_SECURITY__SUPER_USERS": f"User:{SUPER};User:ANONYMOUS",
        "DRAY_TOPICS__AUTO_CREATE": "false",
    }
    with DrayProcess(tmp_path_factory.mktemp("rights-dray"), settings=settings) as process:
        yield process.bootstrap, secure


@asynccontextmanager
async def meeting(addresses: Addresses, *, adds_users: bool) -> AsyncIterator[Clients]:
    runtime = SystemRuntime(threads=1)
    clients = Clients(*addresses, runtime)
    try:
        await clients.start()
        if adds_users:
            await clients.add_users(USERS)
        await clients.allow(BINDINGS)
        yield clients
    finally:
        await clients.close()
        runtime.close()


async def answers(clients: Clients) -> dict[str, dict[str, Any]]:
    """Of one server, to everything, in one order: some requests change what later ones find."""
    await clients.create(*(matrix.place_of(case).topic for case in CASES))
    await mixed.prepare(clients)
    found = {f"mixed-{name}": await mixed.run_request(name, clients) for name in mixed.REQUESTS}
    found |= {f"api-{matrix.slug(case)}": await matrix.run_case(case, clients) for case in CASES}
    return found | {"acls": await acl_requests.run(clients)}


def recorded(name: str) -> dict[str, Any]:
    noted: dict[str, Any] = json.loads((RECORDINGS / f"{name}.json").read_text())
    return noted


@pytest.mark.soak
async def test_recordings_are_what_kafka_says(kafka: Addresses) -> None:
    async with meeting(kafka, adds_users=False) as clients:
        found = await answers(clients)
    if RECORD:
        for name, notes in found.items():
            record(RECORDINGS / f"{name}.json", notes)
    found_other = {name: differences(recorded(name), notes) for name, notes in found.items()}
    assert {name: pairs for name, pairs in found_other.items() if pairs} == {}, "(recorded, said now)"


def compare(theirs: dict[str, dict[str, Any]], ours: dict[str, dict[str, Any]]) -> set[tuple[str, str, Any]]:
    """The differences that were seen. Each of them is stated."""
    unexplained: dict[str, Any] = {}
    seen: set[tuple[str, str, Any]] = set()
    for name, notes in ours.items():
        meant = DIFFERENCES.get(name, {})
        assert set(theirs[name]) == set(notes)
        for label, note in notes.items():
            for path, (kafka_says, dray_says) in differences(theirs[name][label], note).items():
                if any(each.dray == dray_says for each in meant.get(path, ())):
                    seen.add((name, path, dray_says))
                else:
                    unexplained[f"{name}: {label}: {path}"] = kafka_says, dray_says
    assert unexplained == {}, "(Kafka's answer, Dray's answer)"
    return seen


@pytest.mark.soak
@pytest.mark.skipif(ON_KAFKA, reason="the target is Kafka itself")
async def test_all_kinds_of_rights_lead_to_the_same_in_all_versions(
    kafka: Addresses, dray: Addresses
) -> None:
    """Not recorded: 2,600 answers of each."""
    said = []
    for addresses, adds_users in ((kafka, False), (dray, True)):
        async with meeting(addresses, adds_users=adds_users) as clients:
            await clients.create(*(matrix.place_of(case).topic for case in CASES))
            said.append(
                {
                    f"api-{matrix.slug(case)}": await matrix.run_case(case, clients, of_all_kinds=True)
                    for case in CASES
                }
            )
    compare(*said)


@pytest.mark.skipif(ON_KAFKA, reason="the target is Kafka itself")
async def test_dray_answers_as_kafka_does(dray: Addresses) -> None:
    async with meeting(dray, adds_users=True) as clients:
        found = await answers(clients)
    seen = compare({name: recorded(name) for name in found}, found)
    stated = {
        (name, path, each.dray)
        for name, paths in DIFFERENCES.items()
        for path, found_there in paths.items()
        for each in found_there
    }
    assert stated == seen, "no longer different: take it out of the table"
