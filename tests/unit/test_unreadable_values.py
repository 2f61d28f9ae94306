"""A value that this build cannot read is never taken for absent: for every family of keys, and every format.

One value of a cluster is rewritten, as a newer build or a broken disk would leave it. Then everything runs
that ever deletes anything, in processes that knew the value before and in one that starts now. What they
delete is held against the same run without the rewriting: nothing more goes, what has nothing to do with the
value goes all the same, and no round and no task fails.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import cache
from uuid import UUID

import pytest
from tests.services import room_settings
from tests.services.two_builds import ALICE, DOMAINS, MIGRATION, STRAGGLERS, Process, World

from dray.broker.cluster import BrokerIdTaken, Membership, open_cluster
from dray.broker.cluster.clock_guard import BEAT_FORMAT
from dray.broker.cluster.identity import CLUSTER_FORMAT
from dray.broker.cluster.membership import BROKER_FORMAT
from dray.broker.cluster.tally import TALLY_FORMAT
from dray.broker.groups.coordinator import GroupUnavailable
from dray.broker.groups.coordinator.configs import CONFIGS_FORMAT
from dray.broker.groups.coordinator.fence import FENCE_FORMAT
from dray.broker.groups.coordinator.lease import LEASE_FORMAT
from dray.broker.groups.coordinator.storage import RECORD_FORMAT
from dray.broker.groups.offsets import OFFSET_FORMAT
from dray.broker.security.acls.decision import Authorizer
from dray.broker.security.acls.store import ACL_FORMAT
from dray.broker.security.key_follower import REREAD_SECONDS, SecurityUnavailable
from dray.broker.security.quotas.store import QUOTA_FORMAT
from dray.broker.security.users import CREDENTIAL_FORMAT, Upsertion
from dray.broker.topics import NewTopic, TopicExists, TopicsUnavailable, TopicUnreadable
from dray.broker.topics.compaction_requests import REQUEST_FORMAT, CompactionRequests
from dray.broker.topics.model import EPOCH_FORMAT, TOMBSTONE_FORMAT
from dray.daemons.recovery.backups import BACKUP_RECORD_FORMAT
from dray.kafka.acls import AclFilter, AclOperation, AclResourceType
from dray.kafka.quotas import PRODUCER_BYTE_RATE
from dray.kafka.sasl.credentials import ScramMechanism, make_credential
from dray.log import entries, origins, producer_state, wal_keys
from dray.log.append import carried_hints
from dray.log.jobs import cleaned
from dray.log.jobs import values as job_values
from dray.log.life import counters, lifecycle
from dray.log.life.lifecycle import EPOCHS_FORMAT
from dray.log.types import LogUnavailable
from dray.metadata import keys
from dray.metadata.values import FormatTooNew, UnreadableValue, ValueCorrupt
from dray.migration.groups.copy import FOLLOWED_FORMAT
from dray.migration.live.stragglers import STRAGGLERS_FORMAT, ProducedStragglers
from dray.migration.record import LEASE_FORMAT as MIGRATION_LEASE_FORMAT
from dray.migration.record import MIGRATION_FORMAT, Migrations
from dray_simulation.kernel.loop import run

Refusal = Callable[[World, Process], Awaitable[object]]

ONE_LINE = r"^[^\n]+$"


@dataclass(frozen=True)
class Case:
    """A family of keys: its newest format, which of its keys is rewritten, and what is refused then."""

    newest: int
    pick: Callable[[World], str]
    topic: str | None = "orders"  # whose streams the value is about
    refusal: Refusal | None = None
    raises: type[Exception] | tuple[type[Exception], ...] = ()
    is_read: bool = True  # what is not may be deleted as ever
    starts: bool = True  # whether a new broker starts beside such a value
    keeps: Callable[[str], bool] = lambda _: False  # what must stay that would go without the rewriting
    spares: Callable[[str], bool] = lambda _: False  # what may stay, though it is not of the topic


def first_of(world: World) -> int:
    return world.topics["orders"].streams[0]


async def append(world: World, process: Process) -> None:
    await process.append(world.topics["orders"], 0)


async def many_producers(_: World, process: Process) -> None:
    for _number in range(room_settings.log().producer_id_block + 1):  # what is left of a block is still good
        await process.log.allocate_producer_id()


async def offsets(_: World, process: Process) -> None:
    assert process.groups is not None
    await process.groups.offsets("rests", None, -1)


async def take_the_id(world: World, process: Process) -> None:
    """Of a broker that is there, and cannot be read: it is somebody's, for this build too."""
    me, taken = process.membership.me, world.second.membership.me.broker_id
    assert me.broker_id != taken
    await Membership(process.store, process.runtime, replace(me, broker_id=taken)).start()


async def use_the_topic(_: World, process: Process) -> None:
    """It is not served, its name is taken, and it is neither created nor deleted."""
    topics = process.topics
    assert topics.cached("orders") is None
    assert list(topics.unreadable()) == ["orders"]
    with pytest.raises(TopicExists):
        await topics.create(NewTopic("orders"))
    for attempt in (
        topics.ensure("orders"),
        topics.delete("orders"),
        topics.replace_config("orders", {}),
        topics.add_partitions("orders", 9),
        topics.refresh_by_id(UUID(int=9)),
    ):
        with pytest.raises(TopicUnreadable, match=ONE_LINE):
            await attempt
    await topics.refresh("orders", barrier=True)


async def log_in_and_change(_: World, process: Process) -> None:
    await asyncio.sleep(REREAD_SECONDS + 1)
    assert process.users.of("alice") == {}
    sha_256 = ScramMechanism.SHA_256
    with pytest.raises(SecurityUnavailable, match=ONE_LINE):
        await process.users.delete("alice", sha_256)
    credential = make_credential(sha_256, "another", process.runtime.random)
    await process.users.put(Upsertion("alice", sha_256, credential))


class Forbidden(Exception):
    pass


async def read_billing(_: World, process: Process) -> None:
    await asyncio.sleep(REREAD_SECONDS + 1)
    for open_by_default in (True, False):
        authorizer = Authorizer(process.acls.index, allow_if_no_acl=open_by_default)
        assert not authorizer.allowed("User:alice", "1", AclOperation.READ, AclResourceType.TOPIC, "billing")
    assert process.acls.index.matching(AclFilter()) == []
    raise Forbidden("as it must be")


def index_entry(world: World, kind: entries.EntryKind, partition: int = 0) -> str:
    below = world.stored(keys.offset_index(world.topics["orders"].streams[partition]))
    kinds = {key: entries.IndexEntry.decode(world.records()[key].value).kind for key in below}
    return next(key for key in below if kinds[key] is kind)


def staged(world: World) -> str:
    [key] = world.stored(keys.STAGING)
    return key


def unreferenced(world: World) -> str:
    referenced = {keys.wal_id_of(key) for key in world.stored(keys.REFERENCES)}
    found = [
        key
        for key in world.stored(keys.OBJECTS)
        if keys.wal_id_of(key) not in referenced and world.streams_in(key) == {first_of(world)}
    ]
    return found[0]


CASES = {
    "cluster": Case(
        CLUSTER_FORMAT,
        lambda _: keys.CLUSTER,
        topic=None,
        refusal=lambda _, process: open_cluster(process.store, process.runtime, DOMAINS),
        raises=UnreadableValue,
        starts=False,
    ),
    "brokers/<number>": Case(
        BROKER_FORMAT,
        lambda world: keys.broker(world.second.membership.me.broker_id),
        topic=None,
        refusal=take_the_id,
        raises=BrokerIdTaken,
    ),
    "topics/<name>": Case(
        EPOCH_FORMAT, lambda _: keys.topic("orders"), refusal=use_the_topic, raises=TopicUnreadable
    ),
    "deleted-topics/<id>": Case(
        TOMBSTONE_FORMAT, lambda world: keys.deleted_topic(world.topics["gone"].topic_id), topic="gone"
    ),
    # Left to a build that can read it, and not asked for again over it.
    "compaction-requests/<name>": Case(
        REQUEST_FORMAT,
        lambda _: keys.compaction_request("orders"),
        topic=None,
        refusal=lambda world, process: CompactionRequests(process.store, process.runtime).ask(
            world.topics["orders"]
        ),
        raises=UnreadableValue,
    ),
    # Neither taken for no migration, nor written over.
    "migrations/<name>": Case(
        MIGRATION_FORMAT,
        lambda _: keys.migration("orders"),
        topic=None,
        refusal=lambda _, process: Migrations(process.store, process.runtime).begin("orders", MIGRATION),
        raises=UnreadableValue,
    ),
    # Left to the process that put it: see test_migration_link.py.
    "migration-leases/<name>": Case(
        MIGRATION_LEASE_FORMAT, lambda _: keys.migration_lease("orders"), topic=None
    ),
    # What was produced again is not known: nothing is.
    "stragglers/<name>": Case(
        STRAGGLERS_FORMAT,
        lambda _: keys.stragglers("orders"),
        topic=None,
        refusal=lambda _, process: ProducedStragglers(
            process.store, process.runtime, "orders", STRAGGLERS.topic_id
        ).advance(STRAGGLERS.partitions[0]),
        raises=UnreadableValue,
    ),
    "counters/streams": Case(
        counters.FORMAT,
        lambda _: keys.STREAM_COUNTER,
        topic=None,
        refusal=lambda _, process: process.topics.create(NewTopic("many", 1000)),
        raises=TopicsUnavailable,
    ),
    "counters/producers": Case(
        counters.FORMAT,
        lambda _: keys.PRODUCER_COUNTER,
        topic=None,
        refusal=many_producers,
        raises=LogUnavailable,
    ),
    "streams/<number>/hwm": Case(
        origins.MIRRORED_FORMAT,
        lambda world: keys.high_watermark(first_of(world)),
        refusal=append,
        raises=LogUnavailable,
    ),
    "streams/<number>/start": Case(
        entries.FORMAT,
        lambda world: keys.start(first_of(world)),
        refusal=lambda world, process: process.log.bounds(first_of(world)),
        raises=LogUnavailable,
    ),
    "streams/<number>/producers": Case(
        producer_state.FORMAT,
        lambda world: keys.producers(first_of(world)),
        refusal=append,
        raises=LogUnavailable,
    ),
    "streams/<number>/cleaned": Case(cleaned.FORMAT, lambda world: keys.cleaned(first_of(world))),
    "streams/<number>/offset-index/<number>/<number>": Case(
        entries.GAP_FORMAT, lambda world: index_entry(world, entries.EntryKind.WAL)
    ),
    "streams/<number>/offset-index/<number>/<number>: parquet": Case(
        entries.GAP_FORMAT, lambda world: index_entry(world, entries.EntryKind.PARQUET)
    ),
    "streams/<number>/offset-index/<number>/<number>: carried": Case(
        entries.GAP_FORMAT, lambda world: index_entry(world, entries.EntryKind.CARRIED, -1)
    ),
    "compaction/<number>/job": Case(
        job_values.OUTSIDE_FORMAT,
        lambda world: keys.job(first_of(world)),
        refusal=lambda world, process: process.log.delete_records(first_of(world), -1),
        raises=LogUnavailable,
        keeps=lambda line: line.startswith("snapshot") and line.endswith("orders"),
    ),
    "closed-streams/<number>/<number>": Case(
        lifecycle.FORMAT,
        lambda world: world.stored(keys.CLOSED)[0],
        topic=None,
        keeps=lambda line: "/closed-streams/" in line,
        spares=lambda line: line.endswith("/hwm") or "/closed-streams/" in line,
    ),
    "groups/<name>": Case(
        RECORD_FORMAT,
        lambda _: keys.group("rests"),
        topic=None,
        refusal=offsets,
        raises=GroupUnavailable,
        spares=lambda line: "/group-offsets/rests/" in line,
    ),
    "group-leases/<name>": Case(
        LEASE_FORMAT,
        lambda _: keys.group_lease("led"),
        topic=None,
        refusal=lambda _, process: process.commit("led", process.world.topics["orders"]),
        raises=GroupUnavailable,
    ),
    "group-fences/<name>": Case(
        FENCE_FORMAT,
        lambda _: keys.group_fence("rests"),
        topic=None,
        refusal=offsets,
        raises=GroupUnavailable,
        spares=lambda line: "/group-offsets/rests/" in line,
    ),
    # Whether the group may work here is not known: it is let in by a build that can read it.
    "followed-groups/<name>": Case(
        FOLLOWED_FORMAT,
        lambda _: keys.followed_group("came"),
        topic=None,
        refusal=lambda _, process: process.commit("came", process.world.topics["orders"]),
        raises=GroupUnavailable,
    ),
    # Then nothing is deleted from the bucket: `test_cluster_tally.py`.
    "tally": Case(TALLY_FORMAT, lambda _: keys.TALLY, topic=None),
    # Brokers that take turns by it make no backup, and say so.
    "backup": Case(BACKUP_RECORD_FORMAT, lambda _: keys.BACKUP, topic=None, is_read=False),
    # Consumers that come with an earlier epoch hear that they may try again.
    "streams/<number>/epochs": Case(EPOCHS_FORMAT, lambda world: keys.epochs(first_of(world)), is_read=False),
    # A time that cannot be read is no evidence. The key goes when its process has long been silent.
    "clocks/<id>": Case(BEAT_FORMAT, lambda world: world.stored(keys.CLOCKS)[0], topic=None),
    "group-configs/<name>": Case(
        CONFIGS_FORMAT,
        lambda _: keys.group_configs("rests"),
        topic=None,
        refusal=lambda _, process: process.groups.configs.read("rests"),  # type: ignore[union-attr]
        raises=GroupUnavailable,
    ),
    "group-offsets/<name>/<name>/<number>": Case(
        OFFSET_FORMAT,
        lambda _: keys.group_offset("rests", "orders", 0),
        topic=None,
        refusal=offsets,
        raises=GroupUnavailable,
        spares=lambda line: "/group-offsets/rests/" in line,
    ),
    # Nobody is let in by what cannot be read, and it is not written over.
    "users/<name>/<name>": Case(
        CREDENTIAL_FORMAT,
        lambda world: world.stored(keys.USERS)[0],
        topic=None,
        refusal=log_in_and_change,
        raises=SecurityUnavailable,
    ),
    # The key says it all; what a newer build adds in the value may narrow it, so an ALLOW does not hold.
    "acls/<name>/<name>/<name>/<name>/<name>/<name>/<name>": Case(
        ACL_FORMAT,
        lambda world: world.stored(keys.ACLS)[0],
        topic=None,
        refusal=read_billing,
        raises=Forbidden,
    ),
    "client-quotas/<name>": Case(
        QUOTA_FORMAT,
        lambda world: world.stored(keys.CLIENT_QUOTAS)[0],
        topic=None,
        refusal=lambda _, process: process.quotas.alter(ALICE, {PRODUCER_BYTE_RATE: None}),
        raises=SecurityUnavailable,
    ),
    "wal/staging/<id>": Case(wal_keys.OUTSIDE_STAGING_FORMAT, staged),
    # A hint only says where to look: the stream is packed when another hint leads there, or compacted.
    "wal/carried/<number>": Case(
        carried_hints.FORMAT, lambda world: keys.carried_hint(world.topics["orders"].streams[-1])
    ),
    "wal/objects/<id>": Case(wal_keys.OWNED_FORMAT, unreferenced),
    # What a reference says is that it is there: its value is never read.
    "wal/refs/<id>/<number>": Case(
        wal_keys.FORMAT,
        lambda world: next(
            key for key in world.stored(keys.REFERENCES) if world.streams_in(key) == {first_of(world)}
        ),
        is_read=False,
    ),
    "wal/refs/<id>/<number>/<number>": Case(
        wal_keys.FORMAT,
        lambda world: next(
            key
            for key in world.stored(keys.REFERENCES)
            if family_of(key) == "wal/refs/<id>/<number>/<number>"
        ),
        is_read=False,
    ),
}


# --- the families, as the key schema has them

SAMPLES = {
    "broker_id": 1,
    "topic_name": "n",
    "topic_id": UUID(int=1),
    "stream_id": 1,
    "end": 1,
    "day": 1,
    "process": "0" * 32,
    "cumulative_size": 1,
    "group_id": "n",
    "partition": 1,
    "wal_id": UUID(int=1),
    "object_id": UUID(int=1),
    "user_name": "n",
    "mechanism": "SCRAM-SHA-256",
    "entity": {"user": "n"},
    **dict.fromkeys(("resource_type", "pattern_type", "resource_name", "principal", "host"), "n"),
    **dict.fromkeys(("operation", "permission"), "n"),
}
TAKES_NO_KEY_BUT_A_RANGE = {"index_from"}


def family_of(key: str) -> str:
    """The key without what it names."""
    family = re.sub(r"/[0-9a-f]{32}(?=/|$)", "/<id>", key.removeprefix(keys.ROOT.rstrip("/")))
    family = re.sub(r"/[0-9]{20}(?=/|$)", "/<number>", family).removeprefix("/")
    named = (
        r"^(topics|compaction-requests|migrations|migration-leases|stragglers|groups|group-leases|group-fences|"
        r"group-configs|followed-groups)/[^/]+$"
    )
    family = re.sub(named, r"\1/<name>", family)
    family = re.sub(r"^client-quotas/.+$", "client-quotas/<name>", family)
    if family.startswith(("users/", "acls/")) and not family.endswith("/"):
        head, *parts = family.split("/")
        return "/".join([head, *("<name>" for _ in parts)])
    return re.sub(r"^group-offsets/[^/]+/[^/]+/", "group-offsets/<name>/<name>/", family)


def families_in_the_schema() -> set[str]:
    """Every key and prefix that `metadata/keys.py` has or makes."""
    made: set[str] = set()
    for name, thing in vars(keys).items():
        if isinstance(thing, str) and thing.startswith(keys.ROOT) and thing != keys.ROOT:
            made.add(thing)
        elif inspect.isfunction(thing) and thing.__module__ == keys.__name__:
            wanted = inspect.signature(thing).parameters
            if name.startswith("_") or name in TAKES_NO_KEY_BUT_A_RANGE or not set(wanted) <= set(SAMPLES):
                assert name.startswith("_") or name in TAKES_NO_KEY_BUT_A_RANGE | NOT_MAKING_KEYS, (
                    f"keys.{name}: does it make a key? Then it needs samples here, and its family a case"
                )
                continue
            key = thing(**{parameter: SAMPLES[parameter] for parameter in wanted})
            if isinstance(key, str) and key.startswith(keys.ROOT):
                made.add(key)
    return made


NOT_MAKING_KEYS = {
    *("domain_of_stream", "domain_of_group", "number", "name", "parse_name", "prefix_end"),
    *(
        "broker_of",
        "process_of_clock",
        "topic_of",
        "deleted_topic_of",
        "topic_of_compaction_request",
        "topic_of_migration",
        "stream_of",
        "stream_of_high_watermark",
        "end_of_index_entry",
        "part_of_stream",
        "stream_of_job",
        "stream_of_closed",
        "stream_of_carried_hint",
    ),
    *("group_of", "group_of_lease", "group_of_configs", "group_of_followed", "place_of_offset", "wal_id_of"),
    *("credential_of", "parts_of_acl", "parts_of_client_quota"),
}
COVERED = {name.partition(":")[0] for name in CASES}


def test_every_family_of_the_schema_has_a_case() -> None:
    found = {family_of(key) for key in families_in_the_schema()}
    whole = {family for family in found if not family.endswith("/")}
    assert whole == COVERED
    lonely = {family for family in found - whole if not any(case.startswith(family) for case in COVERED)}
    assert lonely <= {"group-offsets/n/"}  # its name stands in for the group's


def test_every_key_that_is_written_has_a_case() -> None:
    async def written() -> set[str]:
        world = World()
        await world.found()
        return {family_of(key) for key in world.stored()}

    assert run(written()) == COVERED


# --- the runs


async def run_with(
    rewritten: Callable[[World], tuple[str, bytes]] | None, starts: bool = True, is_read: bool = True
) -> tuple[World, set[str]]:
    """The cluster after everything has run, and what was deleted in it."""
    world = World()
    await world.found()
    processes = [world.first, world.second]
    key = value = None
    if rewritten is not None:
        key, value = rewritten(world)
        world.rewrite(key, value)
    before = world.everything()
    newcomer = Process(world, 3)
    if starts:
        await newcomer.start()
        processes.append(newcomer)
    raised: list[BaseException] = []
    for process in processes:
        raised += await process.clean()
    assert raised == []
    for process in processes:
        assert process.runtime.failures == []
    if key is not None and is_read:
        assert world.records()[key].value == value, "it was written over"
    return world, before - world.everything()


@cache
def deleted_anyway() -> frozenset[str]:
    _, deleted = run(run_with(None))
    return frozenset(deleted)


def test_without_rewriting_garbage_of_every_kind_goes() -> None:
    """Or else the other tests would prove little."""
    deleted = deleted_anyway()
    for beginning in (
        "key /dray/v1/deleted-topics/",
        "key /dray/v1/group-offsets/rests/gone/",
        "key /dray/v1/streams/",
        "key /dray/v1/wal/refs/",
        "key /dray/v1/wal/objects/",
        "key /dray/v1/wal/staging/",
        "key /dray/v1/wal/carried/",
        "key /dray/v1/closed-streams/",
        "object wal/",
        "object compaction/",
        "table gone",
        "snapshot ",
        "file ",
    ):
        assert any(line.startswith(beginning) for line in deleted), beginning
    assert not any("orders" in line and "group-offsets" in line for line in deleted)


DAMAGE: dict[str, Callable[[bytes, Case], bytes]] = {
    "newer": lambda value, case: bytes([case.newest + 1]) + value[1:],
    "cut off": lambda value, _: value[:1],
    "empty": lambda _, __: b"",
}


# Values of several formats: a case might name one that is no longer the newest.
DECODERS: dict[str, Callable[[bytes], object]] = {
    "streams/<number>/hwm": entries.HighWatermark.decode,
    "streams/<number>/offset-index/<number>/<number>": entries.IndexEntry.decode,
    "compaction/<number>/job": job_values.Job.decode,
    "wal/staging/<id>": wal_keys.Staging.decode,
    "wal/objects/<id>": wal_keys.decode_owned,
    "wal/carried/<number>": carried_hints.check_hint,
}


@pytest.mark.parametrize("family", DECODERS)
def test_one_more_than_the_newest_format_is_too_new(family: str) -> None:
    """Or what stands for a newer build above would be refused as damage."""
    newest = CASES[family].newest
    with pytest.raises(FormatTooNew):
        DECODERS[family](bytes([newest + 1]))
    with pytest.raises(ValueCorrupt):
        DECODERS[family](bytes([newest]))


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("family", CASES)
def test_what_cannot_be_read_is_not_absent(family: str, damage: str) -> None:
    case = CASES[family]

    def rewritten(world: World) -> tuple[str, bytes]:
        key = case.pick(world)
        return key, DAMAGE[damage](world.records()[key].value, case)

    async def compare() -> None:
        world, deleted = await run_with(rewritten, case.starts, case.is_read)
        assert deleted <= deleted_without
        assert not {line for line in deleted if case.keeps(line)}
        about = set(world.topics[case.topic].streams) if case.topic is not None else set()
        missed = deleted_without - deleted
        assert {line for line in missed if not (world.streams_in(line) & about or case.spares(line))} == set()
        if case.refusal is not None:
            for process in (world.first, Process(world, 4)):
                if process is not world.first and case.starts:
                    await process.start()
                elif process is not world.first:
                    continue
                with pytest.raises(case.raises, match=ONE_LINE):
                    await case.refusal(world, process)
                assert process.runtime.failures == []
        await asyncio.sleep(30.0)
        assert world.first.runtime.failures == []

    deleted_without = deleted_anyway()
    run(compare())
