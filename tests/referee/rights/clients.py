"""Clients of one server: each a user of its own, whose rights are there before it asks."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from dray.base.runtime import Runtime
from dray.kafka.acls import AclBinding
from dray.kafka.client import ClientError, Dialer, KafkaConnection
from dray.kafka.client.login import Login
from dray.kafka.protocol import Request, Response
from dray.kafka.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from dray.kafka.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from dray.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from dray.kafka.protocol.messages.describe_acls import DescribeAclsRequest
from dray.kafka.protocol.messages.describe_transactions import DescribeTransactionsRequest
from dray.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from dray.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from dray.kafka.sasl.client import ClientCredential
from tests.referee.notation import NODE_LISTS, GroupNotation
from tests.referee.session import Session

PASSWORD: Final = "rights-of-all-kinds"
SUPER: Final = "admin"
CLOSED: Final = "connection closed"
SECONDS: Final = 60.0
_ACLS_AT_ONCE: Final = 200
_OUTLINED: Final = {"configs", "records"}


class RightsNotation(GroupNotation):
    """Every field, of refusals too; of configs and directories only whether there are any: what they are is
    asked in other tests."""

    def plain(self, value: Any, field: str = "") -> Any:
        if field in _OUTLINED:
            return "some" if value else "none"
        if field == "producer_id" and value >= 0:
            return "an id"
        if field in NODE_LISTS and isinstance(value, list):
            return [self.node_name(node) for node in value]
        return super().plain(value, field)


class Clients:
    """`plain` is the address of a listener whose clients may do everything, `secure` of one that asks."""

    def __init__(self, plain: str, secure: str, runtime: Runtime) -> None:
        self.notation = RightsNotation()
        self.plain = Session("rights", plain, self.notation)
        self.created = 0
        self._secure = secure
        self._runtime = runtime

    async def start(self) -> None:
        await self.plain.meet()
        await self.plain.meet_coordinator()
        await self._until(InitProducerIdRequest(None), 5, lambda found: found.error_code == 0)
        coordinator = FindCoordinatorRequest(key_type=1, coordinator_keys=["rights"])
        await self._until(coordinator, 6, lambda found: found.coordinators[0].error_code in (0, 35))
        transaction = DescribeTransactionsRequest(["rights"])
        await self._until(transaction, 0, lambda found: found.transaction_states[0].error_code == 105)

    async def _until(self, request: Request[Any], version: int, is_ready: Callable[[Any], bool]) -> None:
        """Kafka makes ready for producers and transactions when it is first asked."""
        async with asyncio.timeout(SECONDS):
            while True:
                if is_ready(await self.plain.send(request, version)):
                    return
                await asyncio.sleep(0.05)

    async def close(self) -> None:
        await self.plain.close()

    async def connect(self, user: str) -> KafkaConnection:
        host, port = self._secure.split(":")
        login = Login(ClientCredential("PLAIN", user, PASSWORD), self._runtime)
        return await Dialer(client_id="referee", login=login)(host, int(port))

    async def ask(self, connection: KafkaConnection, request: Request[Any], version: int) -> Response | None:
        """None where the server closed the connection instead."""
        try:
            return await asyncio.wait_for(connection.request(request, version), SECONDS)
        except ClientError as error:
            if "closed the connection" not in str(error) and "broke off" not in str(error):
                raise
            return None

    # --- what is there before they ask

    async def add_users(self, names: Iterable[str]) -> None:
        """Where users are in the store. Kafka's, of the mechanism PLAIN, are in its configuration."""
        salt, iterations = b"one salt for all", 4096
        salted = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), salt, iterations)
        upsertions = [ScramCredentialUpsertion(name, 1, iterations, salt, salted) for name in names]
        response: Any = await self.plain.send(AlterUserScramCredentialsRequest(upsertions=upsertions), 0)
        assert {one.error_code for one in response.results} == {0}, response

    async def create(self, *topics: str) -> None:
        made = [CreatableTopic(name, 1, 1) for name in topics]
        response: Any = await self.plain.send(CreateTopicsRequest(topics=made, timeout_ms=30_000), 7)
        assert {one.error_code for one in response.topics} == {0}, response
        for name in topics:
            await self.plain.until_known(name)

    async def is_there(self, topic: str) -> bool:
        """As the controller has it: a broker of Kafka may know a topic for a moment after it was deleted."""
        made = CreateTopicsRequest(
            topics=[CreatableTopic(topic, 1, 1)], validate_only=True, timeout_ms=30_000
        )
        response: Any = await self.plain.send(made, 7)
        return bool(response.topics[0].error_code)

    async def allow(self, bindings: Sequence[AclBinding]) -> None:
        """Kafka's brokers learn of ACLs a moment after their creation was answered."""
        for at in range(0, len(bindings), _ACLS_AT_ONCE):
            creations = [
                AclCreation(
                    each.resource_type,
                    each.name,
                    each.pattern_type,
                    each.principal,
                    each.host,
                    each.operation,
                    each.permission,
                )
                for each in bindings[at : at + _ACLS_AT_ONCE]
            ]
            response: Any = await self.plain.send(CreateAclsRequest(creations=creations), 3)
            assert {one.error_code for one in response.results} == {0}, response
        self.created = len(set(bindings))
        await self.until_acls(self.created)

    async def until_acls(self, count: int) -> None:
        async with asyncio.timeout(SECONDS):
            while True:
                if await self.count_acls() >= count:
                    return
                await asyncio.sleep(0.05)

    async def count_acls(self) -> int:
        everything = DescribeAclsRequest(1, None, 1, None, None, 1, 1)
        response: Any = await self.plain.send(everything, 3)
        return sum(len(resource.acls) for resource in response.resources)
