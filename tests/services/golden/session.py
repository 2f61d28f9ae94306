"""Group requests to one broker, from several clients at once; the answers, written down.

Compared is every field that two honest brokers must agree on, of refusals too. Left out are texts and
addresses. Ids that a broker makes up are replaced by who they were made for, and lists that Kafka keeps in
hash maps are put in order.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Collection
from typing import Any
from uuid import UUID

from dray.client import ClientError, KafkaConnection
from dray.protocol import ZERO_UUID, Request, Response, Struct
from dray.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from dray.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from dray.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from dray.protocol.messages.describe_groups import DescribeGroupsRequest
from dray.protocol.messages.find_coordinator import FindCoordinatorRequest
from dray.protocol.messages.list_groups import ListGroupsRequest
from tests.services.referee.session import CLOSED, LEFT_OUT, NODE_FIELDS, SECONDS, Session

GroupCase = Callable[["GroupSession"], Awaitable[None]]
CASES: dict[str, GroupCase] = {}

AT_ONCE = 8
"""Cases that run side by side: most of their time they wait for timeouts."""

CONTROL = "control"
"""The client that looks at what the others do."""

_MADE_UP = re.compile(r"(.*)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MADE_UP_BY_KIP_848 = re.compile(r"[A-Za-z0-9_-]{22}")
_ID_FIELDS = {"member_id", "leader"}


def group_case(function: GroupCase) -> GroupCase:
    """Register a case under its function's name."""
    name = getattr(function, "__name__", "").replace("_", "-")
    assert name not in CASES, name
    CASES[name] = function
    return function


async def run_cases(bootstrap: str, names: Collection[str]) -> dict[str, dict[str, Any] | Exception]:
    """The notes of each case, or what went wrong in it."""
    places = asyncio.Semaphore(AT_ONCE)

    async def run(name: str) -> dict[str, Any] | Exception:
        async with places:
            host, port = bootstrap.rsplit(":", 1)
            session = GroupSession(name, host, int(port))
            try:
                await session.meet()
                await CASES[name](session)
            except Exception as error:  # the test of this case raises it
                error.add_note("\n".join(f"{label}: {note}" for label, note in session.notes.items()))
                return error
            finally:
                await session.close()
            return session.notes

    return dict(zip(names, await asyncio.gather(*(run(name) for name in names)), strict=True))


def subscription(*topics: str) -> bytes:
    """What a consumer of the classic protocol says about itself."""
    body = ConsumerProtocolSubscription(topics=list(topics)).encode(1)
    return b"\0\1" + b"".join(bytes(part) for part in body)


class GroupSession(Session):
    def __init__(self, name: str, host: str, port: int) -> None:
        super().__init__(name, host, port)
        self.group = f"golden-{name}"
        self._clients: dict[str, KafkaConnection] = {}
        self._aliases: dict[str, str] = {}
        self._counts: dict[str, int] = {}

    async def meet(self) -> None:
        """Kafka makes its topic of offsets when it is first asked for a coordinator."""
        await super().meet()
        async with asyncio.timeout(SECONDS):
            while True:
                found: Any = await self.send(FindCoordinatorRequest(coordinator_keys=[self.group]), 4)
                described: Any = await self.send(DescribeGroupsRequest(groups=[self.group]), 5)
                if found.coordinators[0].error_code == described.groups[0].error_code == 0:
                    return
                await asyncio.sleep(0.05)

    def group_named(self, suffix: str) -> str:
        return f"{self.group}-{suffix}"

    def topic_id(self, name: str) -> UUID:
        (found,) = [topic_id for topic_id, known in self._topic_ids.items() if known == name]
        return found

    def forget_topic(self, name: str) -> None:
        """It was deleted: the next one of that name has another id."""
        del self._topic_ids[self.topic_id(name)]

    def topic_names(self) -> dict[UUID, str]:
        return dict(self._topic_ids)

    async def send(self, request: Request[Any], version: int, via: str = CONTROL) -> Response:
        """Ask without writing the answer down. Each client has a connection of its own, since a broker
        answers the requests of one in order, and some are parked for long."""
        if via not in self._clients:
            self._clients[via] = await KafkaConnection.connect(self._host, self._port, client_id=via)
        try:
            return await asyncio.wait_for(self._clients[via].request(request, version), SECONDS)
        except (ClientError, TimeoutError):
            if (client := self._clients.pop(via, None)) is not None:
                await client.close()
            raise

    async def ask(self, label: str, request: Request[Any], version: int, via: str = CONTROL) -> Any:
        assert label not in self.notes, label
        self.notes[label] = "(no answer)"
        try:
            response = await self.send(request, version, via)
        except ClientError as error:
            if "closed the connection" not in str(error) and "broke off" not in str(error):
                raise
            self.notes[label] = CLOSED
            return None
        self.notes[label] = self.plain(response)
        return response

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()
        self._clients.clear()

    # --- looking

    async def until(self, state: str, members: int | None = None, group: str | None = None) -> None:
        """A parked request has arrived when the group shows it."""
        async with asyncio.timeout(SECONDS):
            while True:
                response = await self.send(DescribeGroupsRequest(groups=[group or self.group]), 5)
                (found,) = response.groups  # type: ignore[attr-defined]
                if found.group_state == state and members in (None, len(found.members)):
                    return
                await asyncio.sleep(0.01)

    async def until_settled(self, request: asyncio.Task[Any]) -> None:
        """A request is answered, or parked by a rebalance that it has begun."""
        async with asyncio.timeout(SECONDS):
            while not request.done():
                response = await self.send(DescribeGroupsRequest(groups=[self.group]), 5)
                (found,) = response.groups  # type: ignore[attr-defined]
                if found.group_state == "PreparingRebalance":
                    return
                await asyncio.sleep(0.01)

    async def describe(self, label: str, version: int = 6, group: str | None = None) -> Any:
        return await self.ask(label, DescribeGroupsRequest(groups=[group or self.group]), version)

    async def describe_consumer(self, label: str, version: int = 1, group: str | None = None) -> Any:
        return await self.ask(label, ConsumerGroupDescribeRequest(group_ids=[group or self.group]), version)

    async def list_own(
        self, label: str, states: Collection[str] = (), types: Collection[str] = (), version: int = 5
    ) -> None:
        """The groups of this case, as they are listed among those of the others."""
        assert label not in self.notes, label
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        response: Any = await self.send(request, version)
        response.groups = [group for group in response.groups if group.group_id.startswith(self.group)]
        self.notes[label] = self.plain(response)

    async def until_assignable(self, *topics: str) -> None:
        """Kafka's coordinator of groups learns of a topic after all others: until then it assigns nothing."""
        probe = ConsumerGroupHeartbeatRequest(
            group_id=f"probe-{self.name}-{topics[0]}",
            member_id="probe",
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=list(topics),
            topic_partitions=[],
        )
        async with asyncio.timeout(SECONDS):
            while True:
                response: Any = await self.send(probe, 1)
                assert response.error_code == 0, response
                if response.assignment and len(response.assignment.topic_partitions) == len(topics):
                    break
                await asyncio.sleep(0.02)
        probe.member_epoch = -1
        await self.send(probe, 1)

    async def assignable(self, suffix: str = "", partitions: int = 1) -> str:
        """A topic that members of KIP-848 groups can be assigned at once."""
        name = await self.create(suffix, partitions)
        await self.until_assignable(name)
        return name

    # --- writing down

    def plain(self, value: Any, field: str = "") -> Any:
        if isinstance(value, Struct):
            return {
                name: self.plain(getattr(value, name), name)
                for name in value.__slots__
                if name not in LEFT_OUT
            }
        if isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value).hex()
        if isinstance(value, list):
            return sorted((self.plain(entry, field) for entry in value), key=json.dumps)
        if isinstance(value, UUID):
            return "zero" if value == ZERO_UUID else self._topic_ids.get(value, "an id")
        if isinstance(value, str) and field in _ID_FIELDS:
            return self._alias(value)
        if field in NODE_FIELDS:
            return self._node_name(value)
        return value

    def _alias(self, member_id: str) -> str:
        made_up = _MADE_UP.fullmatch(member_id)
        if made_up is None and _MADE_UP_BY_KIP_848.fullmatch(member_id) is None:
            return member_id
        if member_id not in self._aliases:
            owner = made_up[1] if made_up else "member"
            self._counts[owner] = self._counts.get(owner, 0) + 1
            self._aliases[member_id] = f"{owner}-#{self._counts[owner]}"
        return self._aliases[member_id]
