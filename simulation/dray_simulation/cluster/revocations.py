"""Rights that are taken, in all kinds of weather: nobody is served later than the bound after that.

Brokers with ACLs and a listener that asks. Tenants log in, read, look around and join their group, all the
time and with requests that wait. A warden takes from one of them what it has (the ACLs that allow, by a DENY,
or the user itself), sees to it that this is acknowledged, and gives it back later; a user also at once, so
that brokers may not see that it was gone. Or it sets a new password over the old one, for the mechanisms in
turn. A producer, which may do everything, writes what tenants wait for.

No write arrives after its caller gave it up: the engines hold none back beyond their connection, and ACLs
rest on that (docs/design/0081-authorization.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar, Final

from dray.base.config.kinds import Address as ListenAddress
from dray.broker.security.key_follower import KNOWN_WITHIN
from dray.daemons.config import Settings
from dray.daemons.config.listeners import ListenerAddress
from dray.kafka.acls import AclOperation, AclResourceType, PatternType, Permission
from dray.kafka.protocol import ErrorCode, Request, parse_response_header, response_class
from dray.kafka.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from dray.kafka.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from dray.kafka.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from dray.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from dray.kafka.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from dray.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from dray.kafka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from dray.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest
from dray.kafka.sasl.credentials import LEAST_ITERATIONS, ScramMechanism, salted_password
from dray_simulation.checks.log_truth import Violation
from dray_simulation.cluster.client import SimulatedClient, SimulatedConnection, Unanswered
from dray_simulation.cluster.conditions import MAIN, ClusterConditions, Disaster, PlannedDisaster
from dray_simulation.cluster.disasters import play_disasters
from dray_simulation.cluster.ending import first_trouble
from dray_simulation.cluster.producers import PlainProducer
from dray_simulation.cluster.world import ClusterWorld
from dray_simulation.kernel.network import NetworkWeather
from dray_simulation.kernel.weather import Weather

SECONDS: Final = 150.0
SECURE_PORT: Final = 9093
TENANTS: Final = ("alice", "bob")
_PAUSE: Final = 3.0  # of a broker, at most
BOUND: Final = KNOWN_WITHIN + _PAUSE
"""By true time: a broker that stands still answers late."""

_SALT: Final = b"of the simulation"
_STORES_FAIL: Final = "NOT_LEADER_OR_FOLLOWER LEADER_NOT_AVAILABLE KAFKA_STORAGE_ERROR"
_GROUPS_FAIL: Final = (
    "NOT_COORDINATOR COORDINATOR_NOT_AVAILABLE COORDINATOR_LOAD_IN_PROGRESS UNKNOWN_MEMBER_ID"
)
_LONG_POLL: Final = 50.0
_OLD_PASSWORD: Final = 0.2
"""How often a tenant tries the password that it had before."""


class Rights:
    """The rights of tenants, by true time: the oracle. `taken` and `given` are moments at which a change was
    acknowledged; None while it is not known which way it stands. Passwords have numbers, and none comes
    again: `replaced` and `deleted` say since when one is good for no login, and since when for no session."""

    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self.taken: dict[str, float] = {}
        self.given: dict[str, float] = {}
        self.passwords = dict.fromkeys(TENANTS, 0)
        self._replaced: dict[tuple[str, int], float] = {}
        self._deleted: dict[tuple[str, int], float] = {}

    def changing(self, tenant: str) -> None:
        for moments in (self.taken, self.given):
            moments.pop(tenant, None)

    def deleted(self, tenant: str) -> None:
        """The user was, with the last password and all before."""
        for number in range(self.passwords[tenant] + 1):
            self._deleted.setdefault((tenant, number), self._world.now())
            self._replaced.setdefault((tenant, number), self._world.now())

    def renewed(self, tenant: str) -> None:
        """The next password was set."""
        self._replaced.setdefault((tenant, self.passwords[tenant]), self._world.now())
        self.passwords[tenant] += 1
        self.given[tenant] = self._world.now()

    def served(self, tenant: str, number: int, what: str) -> None:
        moments = self.taken.get(tenant), self._deleted.get((tenant, number))
        self._check_served(tenant, what, min((each for each in moments if each is not None), default=None))

    def let_in(self, tenant: str, number: int) -> None:
        self._check_served(tenant, "its login", self._replaced.get((tenant, number)))

    def turned_away(self, tenant: str, number: int) -> None:
        if number == self.passwords[tenant]:
            self.refused(tenant, "its login")

    def _check_served(self, tenant: str, what: str, taken: float | None) -> None:
        now = self._world.now()
        self._world.counts["served"] += 1
        if taken is not None:
            self._world.counts["served after"] += 1
            if now > taken + BOUND:
                raise Violation(f"{tenant}: {what} was served {now - taken:.1f} s after the right was taken")

    def refused(self, tenant: str, what: str) -> None:
        now, given = self._world.now(), self.given.get(tenant)
        self._world.counts["refused"] += 1
        if given is not None and now > given + BOUND:
            raise Violation(f"{tenant}: {what} was refused {now - given:.1f} s after the right was given")


class Tenant(SimulatedClient):
    """`SimulatedClient` for its chance and patience; its connections are to the listener that asks."""

    def __init__(self, world: ClusterWorld, name: str, seed: int, rights: Rights) -> None:
        super().__init__(world, name, seed)
        self._rights = rights

    async def play(self) -> None:
        while True:
            await asyncio.sleep(self.random.random())
            try:
                number = self._rights.passwords[self.name]
                if number and self.random.random() < _OLD_PASSWORD:
                    number -= 1
                connection = await self._log_in(number)
                while not connection.broken:
                    await self._ask_something(connection, number)
                    await asyncio.sleep(self.random.random() * 1.5)
            except Unanswered:
                continue

    async def _log_in(self, number: int) -> SimulatedConnection:
        host = self.random.choice(self.world.brokers).host
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                SimulatedConnection, host, SECURE_PORT
            )
        except OSError as error:
            raise Unanswered(str(error)) from error
        await self._asked(connection, SaslHandshakeRequest(mechanism="PLAIN"), 1)
        token = f"\0{self.name}\0{_password_of(number)}".encode()
        answer = await self._asked(connection, SaslAuthenticateRequest(auth_bytes=token), 2)
        if answer.error_code:
            self._rights.turned_away(self.name, number)
            connection.close()
            raise Unanswered("refused")
        self._rights.let_in(self.name, number)
        return connection

    async def _ask_something(self, connection: SimulatedConnection, number: int) -> None:
        chance = self.random.random()
        if chance < 0.3:
            wanted = ListOffsetsTopic(MAIN, [ListOffsetsPartition(0, -1, -1)])
            answer = await self._asked(connection, ListOffsetsRequest(topics=[wanted]), 7)
            part, what = answer.topics[0].partitions[0], "ListOffsets"
        else:
            least, wait = (1 << 20, _LONG_POLL) if chance < 0.6 else (1, 1.0)
            part, what = await self._fetch(connection, least, wait), f"a fetch of {wait:.0f} s"
        if part.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            self._rights.refused(self.name, what)
        elif part.error_code == ErrorCode.NONE:
            self._rights.served(self.name, number, what)
        else:
            self.world.expect(self.name, what, part.error_code, _STORES_FAIL)

    async def _fetch(self, connection: SimulatedConnection, least: int, wait: float) -> Any:
        """From the start: with so many bytes to wait for, what is there is answered when time is up."""
        wanted = FetchTopic(topic=MAIN, partitions=[FetchPartition(0, partition_max_bytes=1 << 20)])
        request = FetchRequest(
            max_wait_ms=round(wait * 1000), min_bytes=least, max_bytes=1 << 20, topics=[wanted]
        )
        answer = await self._asked(connection, request, 12, wait + self.patience)
        return answer.responses[0].partitions[0]

    async def _asked(
        self, connection: SimulatedConnection, request: Request[Any], version: int, patience: float = 8.0
    ) -> Any:
        timer = asyncio.get_running_loop().call_later(patience, connection.close, "no answer in time")
        try:
            frame = await connection.send(request, version, self.name)
        finally:
            timer.cancel()
        self.world.counts["operations"] += 1
        _, position = parse_response_header(frame, request.API_KEY, version)
        response, _ = response_class(request.API_KEY).decode(frame, position, version)
        return response


class WaitingTenant(Tenant):
    """One of several that join the tenant's group, and take their time: the others wait for it."""

    def __init__(self, world: ClusterWorld, name: str, seed: int, rights: Rights) -> None:
        super().__init__(world, name, seed, rights)
        self._member_id = ""

    async def _ask_something(self, connection: SimulatedConnection, number: int) -> None:
        request = JoinGroupRequest(
            group_id=_group_of(self.name),
            session_timeout_ms=round(2000 * _LONG_POLL),
            rebalance_timeout_ms=round(1000 * _LONG_POLL),
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", b"")],
        )
        answer = await self._asked(connection, request, 3, _LONG_POLL + 20.0)
        if answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
            self._rights.refused(self.name, "JoinGroup")
        elif answer.error_code == ErrorCode.NONE:
            self._member_id = answer.member_id
            self.world.counts["joined"] += 1
            self._rights.served(self.name, number, "JoinGroup")
            await asyncio.sleep(self.random.random() * _LONG_POLL)
        else:
            self._member_id = ""
            self.world.expect(self.name, "JoinGroup", answer.error_code, _GROUPS_FAIL)


class Warden(SimulatedClient):
    """Takes and gives back, one tenant at a time; on the listener that does not ask."""

    def __init__(self, world: ClusterWorld, name: str, seed: int, rights: Rights) -> None:
        super().__init__(world, name, seed)
        self._rights = rights

    async def found(self) -> None:
        for tenant in TENANTS:
            await self._until_done(_set_password(tenant, 0))
            await self._until_done(_creation(tenant, Permission.ALLOW))
            self._rights.given[tenant] = self.world.now()

    async def play(self, tenant: str) -> None:
        while True:
            await asyncio.sleep(self.random.random() * 20)
            how = self.random.choice(("ACL", "DENY", "user", "user", "password"))
            if how == "user":
                await self._delete(tenant)
                if self.random.random() < 0.5:
                    await self._wait()
                await self._renew(tenant)
            elif how == "password":
                await self._renew(tenant)
            else:
                ways: dict[str, tuple[Request[Any], Request[Any]]] = {
                    "ACL": (_deletion(tenant, Permission.ALLOW), _creation(tenant, Permission.ALLOW)),
                    "DENY": (_creation(tenant, Permission.DENY), _deletion(tenant, Permission.DENY)),
                }
                takes, gives = ways[how]
                await self._change(tenant, takes, self._rights.taken, f"took {how} of")
                await self._wait()
                await self._change(tenant, gives, self._rights.given, f"gave {how} to")
            await asyncio.sleep(BOUND * self.random.choice((0.5, 1.2)))

    async def _wait(self) -> None:
        await asyncio.sleep(BOUND + 1 + self.random.random() * 15)

    async def _delete(self, tenant: str) -> None:
        self._rights.changing(tenant)
        last = self._rights.passwords[tenant]
        for number in (last - 1, last):  # in this order: the old one must not count again
            deletion = ScramCredentialDeletion(tenant, _mechanism_of(number))
            await self._until_done(AlterUserScramCredentialsRequest(deletions=[deletion]))
        self._rights.deleted(tenant)
        self._note("deleted", tenant)

    async def _renew(self, tenant: str) -> None:
        self._rights.changing(tenant)
        await self._until_done(_set_password(tenant, self._rights.passwords[tenant] + 1))
        self._rights.renewed(tenant)
        self._note("gave a password to", tenant)

    async def _change(self, tenant: str, request: Request[Any], moments: dict[str, float], verb: str) -> None:
        self._rights.changing(tenant)
        await self._until_done(request)
        moments[tenant] = self.world.now()
        self._note(verb, tenant)

    def _note(self, verb: str, tenant: str) -> None:
        self.world.counts[verb] += 1
        self.world.trace(self.name, verb, tenant)

    async def _until_done(self, request: Request[Any]) -> None:
        while True:
            try:
                answer: Any = await self.ask(self.any_address(), request, patience=5.0)
            except Unanswered:
                continue
            if isinstance(request, DeleteAclsRequest):
                codes = {result.error_code for result in answer.filter_results}
            else:
                codes = {result.error_code for result in answer.results}
            if codes <= {ErrorCode.NONE, ErrorCode.RESOURCE_NOT_FOUND}:
                return
            for code in codes:
                self.world.expect(self.name, type(request).__name__, code, "REQUEST_TIMED_OUT")
            await asyncio.sleep(0.2)


def _group_of(tenant: str) -> str:
    return f"group of {tenant}"


def _resources(tenant: str) -> list[tuple[AclResourceType, str]]:
    return [(AclResourceType.TOPIC, MAIN), (AclResourceType.GROUP, _group_of(tenant))]


def _creation(tenant: str, permission: Permission) -> CreateAclsRequest:
    return CreateAclsRequest(
        creations=[
            AclCreation(kind, name, PatternType.LITERAL, f"User:{tenant}", "*", AclOperation.ALL, permission)
            for kind, name in _resources(tenant)
        ]
    )


def _deletion(tenant: str, permission: Permission) -> DeleteAclsRequest:
    return DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                kind, name, PatternType.LITERAL, f"User:{tenant}", None, AclOperation.ANY, permission
            )
            for kind, name in _resources(tenant)
        ]
    )


def _password_of(number: int) -> str:
    return f"known to the simulation, {number}"


def _mechanism_of(number: int) -> ScramMechanism:
    """Now one, now the other: the password set last counts."""
    return ScramMechanism.SHA_512 if number % 2 else ScramMechanism.SHA_256


def _set_password(tenant: str, number: int) -> AlterUserScramCredentialsRequest:
    mechanism = _mechanism_of(number)
    salted = salted_password(mechanism, _password_of(number), _SALT, LEAST_ITERATIONS)
    return AlterUserScramCredentialsRequest(
        upsertions=[ScramCredentialUpsertion(tenant, mechanism, LEAST_ITERATIONS, _SALT, salted)]
    )


async def play_revocations(world: ClusterWorld) -> None:
    conditions = world.conditions
    seed = conditions.seed * 1000
    rights = Rights(world)
    await world.start()
    await world.create_topics()
    wardens = {
        tenant: Warden(world, f"warden of {tenant}", seed + number, rights)
        for number, tenant in enumerate(TENANTS)
    }
    await wardens[TENANTS[0]].found()
    makers: list[Callable[[], Any]] = [
        PlainProducer(world, "producer", seed + 10).play,
        lambda: play_disasters(world),
    ]
    tasks = [asyncio.ensure_future(make()) for make in makers]
    tasks += [asyncio.ensure_future(warden.play(tenant)) for tenant, warden in wardens.items()]
    tasks += [
        asyncio.ensure_future(kind(world, tenant, seed + 20 + 4 * number + one, rights).play())
        for number, tenant in enumerate(TENANTS)
        for one, kind in enumerate((Tenant, Tenant, WaitingTenant, WaitingTenant))
    ]
    try:
        await first_trouble(world, tasks, conditions.seconds)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for broker in world.brokers:
        broker.check()


@dataclass(slots=True)
class SecuredConditions(ClusterConditions):
    script: ClassVar[Callable[[ClusterWorld], Awaitable[None]]] = staticmethod(play_revocations)

    def settings(self, place: int, host: str, port: int) -> Settings:
        """With times as they are configured: a run is long, and little happens in it."""
        given = Settings()
        return replace(
            given,
            cluster=replace(given.cluster, domains=self.domains),
            broker=replace(
                given.broker,
                id=place,
                listen=ListenAddress(host, port),
                listeners={
                    "SECURE": ListenerAddress(
                        host, SECURE_PORT, protocol="SASL_PLAINTEXT", mechanisms=("PLAIN",)
                    )
                },
                http=None,
                shutdown_grace=0.5,
            ),
            security=replace(given.security, authorization="acls", super_users=("User:ANONYMOUS",)),
            objects=replace(given.objects, url="memory:"),
            log=replace(given.log, tail_cache_bytes=64 << 20),
            topics=replace(given.topics, auto_create=False),
        )


def taken_rights(seed: int) -> SecuredConditions:
    random = Random(seed)
    kinds = (Disaster.CRASH, Disaster.STOP, Disaster.PAUSE, Disaster.CUT, Disaster.CUT)
    disasters = [
        PlannedDisaster(
            random.uniform(1.0, SECONDS), random.choice(kinds), random.randrange(2), random.random() * _PAUSE
        )
        for _ in range(6)
    ]
    return SecuredConditions(
        seed=seed,
        brokers=2,
        compactors=0,
        partitions=1,
        seconds=SECONDS,
        pace=4.0,
        weather=Weather(
            Random(seed ^ 0xACC),
            late=0.0,
            twice=0.0,
            stale=random.choice((0.0, 0.05)),
            unheard=random.choice((0.6, 0.95)),
        ),
        network=NetworkWeather(Random(seed ^ 0x4E7), broken=0.003, silent=0.001),
        disasters=tuple(sorted(disasters, key=lambda planned: planned.at)),
    )
