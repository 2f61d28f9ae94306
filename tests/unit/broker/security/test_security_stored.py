"""Users, ACLs and quotas in the metadata store: every broker hears of them, and the last known holds."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import structlog
from tests.services.two_builds import ALICE, ALICE_READS
from tests.simulation.scripted import Fate, ScriptedStore

from dray.broker.security.acls.decision import Authorizer
from dray.broker.security.acls.store import Acls, binding_of, key_of
from dray.broker.security.key_follower import KNOWN_WITHIN, REREAD_SECONDS, SecurityUnavailable
from dray.broker.security.quotas import store as quota_store
from dray.broker.security.quotas.store import Quotas, decode_quotas, entity_of
from dray.broker.security.users import (
    NoSuchCredential,
    UnacceptableCredential,
    Upsertion,
    Users,
    decode_credential,
    encode_credential,
)
from dray.kafka.acls import AclBinding, AclFilter, AclOperation, AclResourceType, PatternType, Permission
from dray.kafka.quotas import PRODUCER_BYTE_RATE, QuotaEntity
from dray.kafka.sasl.credentials import (
    ScramCredential,
    ScramMechanism,
    credential_from_salted,
    is_still_there,
    make_credential,
    salted_password,
    verify_password,
)
from dray.metadata import keys
from dray.metadata.contract import Put, Unavailable
from dray.metadata.memory import MemoryState, MemoryStore
from dray_simulation.kernel.loop import run
from dray_simulation.kernel.runtime import SimulatedRuntime

VALUES = Path(__file__).parents[3] / "fixtures" / "values"
SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
DENY_ALL = ALICE_READS._replace(operation=AclOperation.ALL, permission=Permission.DENY)


def simulated(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    @functools.wraps(test)
    def in_virtual_time() -> None:
        run(test())  # type: ignore[arg-type]

    del in_virtual_time.__wrapped__
    return in_virtual_time


class BrokenStore(MemoryStore):
    """Away while `down`: neither reads nor writes; `deaf`: watches say nothing."""

    down = False
    deaf = False

    def _check(self) -> None:
        if self.down:
            raise Unavailable("away")

    async def get(self, domain: int, key: str):
        self._check()
        return await super().get(domain, key)

    async def scan(self, domain: int, start: str, end: str, limit: int | None = None):
        self._check()
        return await super().scan(domain, start, end, limit)

    async def write(self, domain: int, operations):
        self._check()
        return await super().write(domain, operations)

    async def watch(self, domain: int, endings: tuple[str, ...] = ()):
        async for change in super().watch(domain, endings):
            if not self.deaf:
                yield change


class SecuredBroker:
    def __init__(self, state: MemoryState, number: int = 1) -> None:
        self.runtime = SimulatedRuntime(number)
        self.store = BrokenStore(self.runtime, state)
        self.users = Users(self.store, self.runtime)
        self.acls = Acls(self.store, self.runtime)
        self.quotas = Quotas(self.store, self.runtime)

    async def start(self) -> SecuredBroker:
        for part in (self.users, self.acls, self.quotas):
            await part.start()
        return self

    def reads(self) -> bool:
        authorizer = Authorizer(self.acls.index)
        return authorizer.allowed("User:alice", "1", AclOperation.READ, AclResourceType.TOPIC, "billing")


def credential(password: str = "pencil", seed: int = 1) -> ScramCredential:
    return make_credential(SHA_256, password, Random(seed))


# --- formats


def test_the_stored_forms() -> None:
    salt = b"0123456789abcdef"
    made = credential_from_salted(SHA_256, salted_password(SHA_256, "pencil", salt, 4096), salt, 4096)
    stored = (VALUES / "credential.v1.bin").read_bytes()
    assert encode_credential(made) == stored
    assert decode_credential("alice", stored) == made
    assert b"pencil" not in stored
    assert decode_credential("alice", stored).incarnation == ""
    stored = (VALUES / "credential-incarnation.v1.bin").read_bytes()
    assert encode_credential(replace(made, incarnation="5eed5eed5eed5eed")) == stored
    assert decode_credential("alice", stored).incarnation == "5eed5eed5eed5eed"
    quotas = {PRODUCER_BYTE_RATE: 1048576.0, "request_percentage": 12.5}
    stored = (VALUES / "client-quotas.v1.bin").read_bytes()
    assert quota_store.encode_quotas(quotas) == stored
    assert decode_quotas("user=alice", stored) == quotas
    assert (VALUES / "acl.v1.bin").read_bytes() == b"\x01{}"


def test_keys_are_made_and_read() -> None:
    assert key_of(ALICE_READS) == "/dray/v1/acls/topic/literal/billing/User%3Aalice/%2A/read/allow"
    for kind in (AclResourceType.TOPIC, AclResourceType.TRANSACTIONAL_ID):
        for pattern in (PatternType.LITERAL, PatternType.PREFIXED):
            binding = AclBinding(
                kind, pattern, "a/b%", "User:ü:x", "::1", AclOperation.ALTER_CONFIGS, Permission.DENY
            )
            assert binding_of(key_of(binding)) == binding
    assert binding_of("/dray/v1/acls/what/literal/billing/User%3Aalice/%2A/read/allow") is None
    for entity in (
        QuotaEntity(("a/=b",)),
        QuotaEntity((None,)),
        QuotaEntity(("a",), (None,)),
        QuotaEntity(None, ("x",)),
        QuotaEntity(ip=("::1",)),
        QuotaEntity(ip=(None,)),
    ):
        assert entity_of(quota_store.key_of(entity)) == entity
    assert entity_of(f"{keys.CLIENT_QUOTAS}planet=earth") is None


# --- every broker hears


@simulated
async def test_changes_reach_other_brokers_at_once() -> None:
    state = MemoryState()
    one, two = await SecuredBroker(state, 1).start(), await SecuredBroker(state, 2).start()
    await one.users.put(Upsertion("alice", SHA_256, credential()))
    await one.acls.create([ALICE_READS])
    await one.quotas.alter(ALICE, {PRODUCER_BYTE_RATE: 9.0})
    assert one.reads(), "who asked for it sees it at once"
    await asyncio.sleep(1.0)
    assert two.users.of("alice") == {SHA_256: credential()}
    assert two.reads()
    assert two.quotas.table.of(ALICE) == {PRODUCER_BYTE_RATE: 9.0}
    await two.users.delete("alice", SHA_256)
    assert await two.acls.delete([AclFilter(name="billing")]) == [[ALICE_READS]]
    await two.quotas.alter(ALICE, {PRODUCER_BYTE_RATE: None})
    await asyncio.sleep(1.0)
    assert one.users.names() == []
    assert not one.reads()
    assert one.quotas.table.items() == []
    assert [key for key in state.domain(0, 0.0).entries if "dray-barrier" not in key] == []


@simulated
async def test_a_watch_that_says_nothing_is_made_up_for() -> None:
    state = MemoryState()
    one, two = await SecuredBroker(state, 1).start(), await SecuredBroker(state, 2).start()
    two.store.deaf = True
    await one.users.put(Upsertion("alice", SHA_256, credential()))
    await one.acls.create([ALICE_READS])
    await asyncio.sleep(REREAD_SECONDS + 1)
    assert two.users.names() == ["alice"]
    assert two.reads()
    await one.users.delete("alice", SHA_256)
    await one.acls.delete([AclFilter()])
    await asyncio.sleep(REREAD_SECONDS + 1)
    assert two.users.names() == []
    assert not two.reads()


@simulated
async def test_who_was_deleted_and_added_again_is_another_though_nobody_saw_it_go() -> None:
    """A watch is a hint, and a re-read sees what is there: only the value can tell."""
    state = MemoryState()
    one, two = await SecuredBroker(state, 1).start(), await SecuredBroker(state, 2).start()
    await one.users.put(Upsertion("alice", SHA_256, credential()))
    await asyncio.sleep(1.0)
    proven = two.users.of("alice")[SHA_256]
    two.store.deaf = True
    await one.users.put(Upsertion("alice", SHA_256, credential("another")))
    await asyncio.sleep(REREAD_SECONDS + 1)
    assert two.users.of("alice")[SHA_256] != proven
    assert is_still_there(two.users, "alice", SHA_256, proven), "a new password is the same user's"
    await one.users.delete("alice", SHA_256)
    await one.users.put(Upsertion("alice", SHA_256, credential("another")))
    await asyncio.sleep(REREAD_SECONDS + 1)
    assert not is_still_there(two.users, "alice", SHA_256, proven)


@simulated
async def test_every_broker_knows_which_password_was_set_last() -> None:
    state = MemoryState()
    one, two = await SecuredBroker(state, 1).start(), await SecuredBroker(state, 2).start()
    for seed, mechanism in enumerate((SHA_256, SHA_512, SHA_256, SHA_512, SHA_512, SHA_256)):
        made = make_credential(mechanism, "pencil", Random(seed))
        await one.users.put(Upsertion("alice", mechanism, made))
        await asyncio.sleep(1.0)
        newcomer = await SecuredBroker(state, 3).start()
        for broker in (one, two, newcomer):
            assert broker.users.set_last("alice") is mechanism
        await newcomer.users.stop()
    await one.users.delete("alice", SHA_256)
    assert one.users.set_last("alice") is SHA_512


@simulated
async def test_an_older_password_does_not_come_back_where_a_hint_was_lost() -> None:
    """The older one is deleted first, which nobody hears of; then the one that counts."""
    state = MemoryState()
    one, two = await SecuredBroker(state, 1).start(), await SecuredBroker(state, 2).start()
    for mechanism in (SHA_256, SHA_512):
        await one.users.put(Upsertion("alice", mechanism, make_credential(mechanism, "pencil", Random(1))))
    await asyncio.sleep(1.0)
    two.store.deaf = True
    await one.users.delete("alice", SHA_256)
    await asyncio.sleep(1.0)
    assert two.users.set_last("alice") is SHA_512
    two.store.deaf = False
    await one.users.delete("alice", SHA_512)
    await asyncio.sleep(1.0)
    assert two.users.of("alice") == {}


@simulated
async def test_with_the_store_away_the_last_known_holds() -> None:
    state = MemoryState()
    broker = await SecuredBroker(state).start()
    await broker.users.put(Upsertion("alice", SHA_256, credential()))
    await broker.acls.create([ALICE_READS])
    broker.store.down = True
    await asyncio.sleep(10 * REREAD_SECONDS)
    assert broker.users.names() == ["alice"]
    assert broker.reads()
    with pytest.raises(SecurityUnavailable):
        await broker.acls.create([DENY_ALL])
    with pytest.raises(SecurityUnavailable):
        await broker.users.put(Upsertion("alice", SHA_256, credential("other")))
    with pytest.raises(Unavailable):
        newcomer = SecuredBroker(state, 2)
        newcomer.store.down = True
        await newcomer.start()


@simulated
async def test_a_re_read_that_fails_is_made_again_within_the_bound() -> None:
    """The watch says nothing, and the store is away for a moment just when the re-read is due."""
    state = MemoryState()
    one, two = await SecuredBroker(state, 1).start(), await SecuredBroker(state, 2).start()
    await one.acls.create([ALICE_READS])
    await asyncio.sleep(1)
    assert two.reads()
    two.store.deaf = True
    [deleted] = await one.acls.delete([AclFilter()])
    assert deleted == [ALICE_READS]
    began = asyncio.get_running_loop().time()
    await asyncio.sleep(REREAD_SECONDS - 3)
    two.store.down = True
    await asyncio.sleep(4)
    assert two.reads(), "the last known holds"
    two.store.down = False
    await asyncio.sleep(began + KNOWN_WITHIN - asyncio.get_running_loop().time())
    assert not two.reads()


@simulated
async def test_a_re_read_waits_for_a_barrier() -> None:
    """A replica that is behind would keep a right alive."""
    broker = await SecuredBroker(MemoryState()).start()
    asked: list[str] = []
    barrier, scan = broker.store.barrier, broker.store.scan

    async def noted_barrier(domain: int) -> None:
        asked.append("barrier")
        await barrier(domain)

    async def noted_scan(domain: int, start: str, end: str, limit: int | None = None):
        asked.append(start)
        return await scan(domain, start, end, limit)

    broker.store.barrier, broker.store.scan = noted_barrier, noted_scan  # type: ignore[method-assign]
    await asyncio.sleep(5)  # the watch has begun, and read everything
    asked.clear()
    await asyncio.sleep(REREAD_SECONDS)
    for prefix in (keys.ACLS, keys.USERS):
        assert prefix in asked
    assert asked.count("barrier") == len(asked) / 2


@simulated
async def test_many_acls_are_read_page_by_page() -> None:
    state = MemoryState()
    one = await SecuredBroker(state, 1).start()
    many = [ALICE_READS._replace(name=f"topic-{number}") for number in range(2500)]
    await one.acls.create(many)
    two = await SecuredBroker(state, 2).start()
    assert len(two.acls.index) == 2500
    in_threads: list[str] = []
    in_thread = two.runtime.in_thread

    async def noted(function, *arguments):
        in_threads.append("looked through")
        return await in_thread(function, *arguments)

    two.runtime.in_thread = noted  # type: ignore[method-assign]
    [deleted] = await two.acls.delete([AclFilter(name="topic-7")])
    assert in_threads, "so many are not looked through on the event loop"
    assert deleted == [ALICE_READS._replace(name="topic-7")]
    await two.acls.delete([AclFilter(principal="User:alice")])
    assert len(two.acls.index) == 0


# --- writes whose fate is unclear


@simulated
async def test_a_write_that_arrives_late_brings_no_old_password_back() -> None:
    runtime = SimulatedRuntime(1)
    store = ScriptedStore(runtime, MemoryState())
    users = Users(store, runtime)
    await users.start()
    await users.put(Upsertion("alice", SHA_256, credential("first", 1)))
    trap = store.trap(Fate.LATE, "write", "/users/")
    await users.put(Upsertion("alice", SHA_256, credential("second", 2)))
    await users.put(Upsertion("alice", SHA_256, credential("third", 3)))
    trap.land()
    await asyncio.sleep(REREAD_SECONDS + 1)
    assert users.of("alice") == {SHA_256: credential("third", 3)}


@simulated
async def test_a_reply_that_was_lost_is_found_out() -> None:
    runtime = SimulatedRuntime(1)
    store = ScriptedStore(runtime, MemoryState())
    users, acls = Users(store, runtime), Acls(store, runtime)
    await users.start()
    await acls.start()
    store.trap(Fate.LOSE_REPLY, "write", "/users/")
    await users.put(Upsertion("alice", SHA_256, credential()))
    store.trap(Fate.LOSE_REPLY, "write", "/users/")
    await users.delete("alice", SHA_256)
    assert users.names() == []
    store.trap(Fate.LOSE_REPLY, "write", "/acls/")
    await acls.create([ALICE_READS])
    store.trap(Fate.LOSE_REPLY, "write", "/acls/")
    assert await acls.delete([AclFilter()]) == [[ALICE_READS]]
    assert len(acls.index) == 0


@simulated
async def test_two_who_alter_the_same_entity_both_succeed() -> None:
    state = MemoryState()
    one, two = await SecuredBroker(state, 1).start(), await SecuredBroker(state, 2).start()
    await asyncio.gather(
        one.quotas.alter(ALICE, {PRODUCER_BYTE_RATE: 1.0}),
        two.quotas.alter(ALICE, {"request_percentage": 2.0}),
    )
    await asyncio.sleep(1.0)
    assert one.quotas.table.of(ALICE) == {PRODUCER_BYTE_RATE: 1.0, "request_percentage": 2.0}


# --- refusals


@simulated
async def test_what_cannot_be_a_credential() -> None:
    broker = await SecuredBroker(MemoryState()).start()
    few = make_credential(SHA_256, "x", Random(1), 4095)
    many = make_credential(SHA_256, "x", Random(1), 16385)
    for user, made in (("", credential()), ("a\0b", credential()), ("\u2168", credential())):
        with pytest.raises(UnacceptableCredential):
            await broker.users.put(Upsertion(user, SHA_256, made))
    for made in (few, many):
        with pytest.raises(UnacceptableCredential):
            await broker.users.put(Upsertion("alice", SHA_256, made))
    with pytest.raises(NoSuchCredential):
        await broker.users.delete("alice", SHA_256)
    assert broker.users.names() == []


@simulated
async def test_a_users_mechanisms_are_apart() -> None:
    broker = await SecuredBroker(MemoryState()).start()
    await broker.users.put(Upsertion("alice", SHA_256, credential()))
    await broker.users.put(Upsertion("alice", SHA_512, make_credential(SHA_512, "pencil", Random(1))))
    assert set(broker.users.of("alice")) == {SHA_256, SHA_512}
    assert verify_password(SHA_512, broker.users.of("alice")[SHA_512], "pencil")
    await broker.users.delete("alice", SHA_256)
    assert set(broker.users.of("alice")) == {SHA_512}


# --- what cannot be read


@simulated
async def test_an_acl_of_a_newer_build_narrows_and_never_widens() -> None:
    broker = await SecuredBroker(MemoryState()).start()
    denies = DENY_ALL._replace(name="denied")
    await broker.store.write(0, [Put(key_of(binding), b"\x02{}") for binding in (ALICE_READS, denies)])
    await broker.acls.create([denies._replace(permission=Permission.ALLOW)])
    await asyncio.sleep(1.0)
    everybody = Authorizer(broker.acls.index, allow_if_no_acl=True)
    for name, allowed in (("billing", False), ("denied", False), ("other", True)):
        assert everybody.allowed("User:alice", "1", AclOperation.READ, AclResourceType.TOPIC, name) is allowed
    await broker.store.write(0, [Put(key_of(ALICE_READS), b"\x01{}")])
    await asyncio.sleep(1.0)
    assert broker.reads(), "written anew in a format that is known"


@simulated
async def test_an_older_password_does_not_count_beside_one_that_cannot_be_read() -> None:
    broker = await SecuredBroker(MemoryState()).start()
    await broker.users.put(Upsertion("alice", SHA_256, credential()))
    assert broker.users.set_last("alice") is SHA_256
    await broker.store.write(0, [Put(keys.user("alice", SHA_512.sasl_name), b"\x02{}")])
    await asyncio.sleep(1.0)
    assert broker.users.set_last("alice") is None
    assert set(broker.users.of("alice")) == {SHA_256}, "SCRAM asks for one of them"


@simulated
async def test_no_log_line_has_a_secret() -> None:
    with structlog.testing.capture_logs() as lines:
        broker = await SecuredBroker(MemoryState()).start()
        await broker.users.put(Upsertion("alice", SHA_256, credential("hunter2")))
        stored = encode_credential(credential("hunter2"))
        await broker.store.write(0, [Put(keys.user("alice", "SCRAM-SHA-256"), b"\x01" + stored[2:])])
        await broker.store.write(0, [Put(keys.user("bob", "SCRAM-SHA-256"), stored.replace(b"=", b"!"))])
        await asyncio.sleep(1.0)
        with pytest.raises(SecurityUnavailable) as refused:
            await broker.users.put(Upsertion("bob", SHA_256, credential("hunter2")))
    assert [line for line in lines if line["log_level"] == "error"]
    decoded = decode_credential("alice", stored)
    for told in (repr(lines), str(refused.value), repr(decoded)):
        assert "hunter2" not in told
        assert stored[20:40].decode() not in told
