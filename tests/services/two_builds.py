"""A small cluster with something of everything in it, in virtual time, to rewrite single values of.

Real topics, log, groups, memberships and compactors share stores in memory. There is garbage of every kind,
so that what cleans up has something to delete: a deleted topic with its table, expired records, merged files,
objects without references, an object that is no longer worked on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from uuid import UUID

from dray.broker.cluster import AUTOMATIC, AdvertisedListener, Broker, ClockGuard, Membership, open_cluster
from dray.broker.cluster.tally import Tally, encode_tally
from dray.broker.groups import classic
from dray.broker.groups.coordinator import Groups
from dray.broker.groups.coordinator.configs import SESSION_TIMEOUT
from dray.broker.groups.coordinator.sweep import sweep
from dray.broker.groups.offsets import CommittedOffset
from dray.broker.security.acls.store import Acls
from dray.broker.security.quotas.store import Quotas
from dray.broker.security.users import Upsertion, Users
from dray.broker.topics import NewTopic, Topic, Topics
from dray.broker.topics.compaction_requests import CompactionRequests
from dray.broker.topics.live import StoredTopics
from dray.broker.topics.retention import RetentionLoop
from dray.daemons.recovery.backups import StoredBackup, encode_stored_backup
from dray.kafka.acls import AclBinding, AclOperation, AclResourceType, PatternType, Permission
from dray.kafka.protocol import ErrorCode
from dray.kafka.quotas import PRODUCER_BYTE_RATE, QuotaEntity
from dray.kafka.records import Record, twin, validate
from dray.kafka.sasl.credentials import ScramMechanism, make_credential
from dray.log import Log, wal_keys
from dray.log.jobs.cleaned import Cleaned, CleanPoint
from dray.log.life.lifecycle import KEEP_CLOSED_DAYS, Epochs, encode_epochs, note_closed
from dray.log.life.retention import Retention
from dray.log.stream_store import StreamStore
from dray.log.wal import object_path
from dray.metadata import keys
from dray.metadata.contract import Put, StoredValue
from dray.metadata.memory import MemoryState, MemoryStore
from dray.migration.groups.copy import CopiedOffset, CopiedTopic, CopyState, GroupCopy, encode_copy
from dray.migration.groups.gate import GroupGate
from dray.migration.live.stragglers import PartitionProgress, StragglerProgress, encode_progress
from dray.migration.record import MigrationLeases, MigrationRecord, Migrations, MigrationState
from dray.objects.memory import MemoryBucket, MemoryObjects
from dray.tables.compaction.cycle import Compactor, CompactorStores
from dray.tables.compaction.settings import CompactionSettings
from dray.tables.compaction.writing.executor import LocalUnitWriter
from dray_simulation.cluster.tables import MemoryCatalog, MemoryTables
from dray_simulation.kernel.runtime import SimulatedRuntime
from tests.services import room_settings
from tests.services.room_settings import EMBEDDED
from tests.simulation.scripted import bucket_is_ours

GROUP_COPY = GroupCopy(
    CopyState.MOVED,
    "old",
    {"orders": CopiedTopic(UUID(int=6), (CopiedOffset(0, 7, "so far"), CopiedOffset(1, 2**40, "")))},
    taken_in=True,
)
STRAGGLERS = StragglerProgress(UUID(int=6), 2**48, 0, (PartitionProgress(0, 1007, 3),))
MIGRATION = MigrationRecord(
    state=MigrationState.ATTACHED,
    migration_id=UUID(int=5),
    topic_id=UUID(int=6),
    layout="kafka-tiered",
    source="s3://old/tier",
    store="old",
    plan="0" * 64,
    leader_epoch=65_536,
    partitions=1,
    streams=(7,),
    bounds=((0, 100),),
    config={"retention.ms": "-1"},
    created_ms=1_790_000_000_000,
)

DOMAINS = 2
ALICE = QuotaEntity(("alice",))
ALICE_READS = AclBinding(
    AclResourceType.TOPIC,
    PatternType.LITERAL,
    "billing",
    "User:alice",
    "*",
    AclOperation.READ,
    Permission.ALLOW,
)
MANY = 1 << 30
RETENTION_SECONDS = 300.0
LOG = room_settings.log(
    object_bytes=1,
    retry_seconds=0.001,
    settle_seconds=0.01,
    orphan_ttl=5.0,
    job_seconds=5.0,
    collect_grace=1.0,
    collect_seconds=1e9,  # rounds are run by the tests
    pack_look_seconds=1e9,
    carry=EMBEDDED,
)
CLEANING = room_settings.compaction(
    takeover_seconds=0.0,
    collect_grace=1.0,
    snapshot_keep_ms=0,
    failed_pause_seconds=0.0,
    collect_seconds=0.0,
)
KEEPING = replace(CLEANING, collect_grace=1e9, snapshot_keep_ms=10**12, drop_tables=False)


class Process:
    """A broker and a compactor of one build, with clients of the stores of their own."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.runtime = SimulatedRuntime(number)
        self.store = MemoryStore(self.runtime, world.state)
        self.objects = MemoryObjects(self.runtime, world.bucket)
        self.log = Log(self.store, self.objects, self.runtime, DOMAINS, LOG, may_delete=bucket_is_ours)
        options = room_settings.topics(sweep_interval=1e9, sweep_grace=0.0)
        self.topics = Topics(self.store, self.runtime, self.log, options)
        self.streams = StreamStore(self.store, DOMAINS, LOG.producer_expiry_ms)
        self.stored_topics = StoredTopics(self.store, {})
        self.retention = RetentionLoop(
            Retention(self.streams, self.runtime, LOG), self.stored_topics, self.runtime, 1e9
        )
        listeners = (AdvertisedListener("PLAINTEXT", "127.0.0.1", 9000 + number),)
        self.membership = Membership(self.store, self.runtime, Broker(AUTOMATIC, listeners))
        self.groups: Groups | None = None
        self.users = Users(self.store, self.runtime)
        self.acls = Acls(self.store, self.runtime)
        self.quotas = Quotas(self.store, self.runtime)
        self.clocks = ClockGuard(self.store, self.runtime, machine=f"machine {number}")

    async def start(self) -> None:
        await open_cluster(self.store, self.runtime, DOMAINS)
        await self.log.start()
        await self.topics.start()
        await self.membership.start()
        self.groups = Groups(
            self.store,
            self.runtime,
            self.topics,
            self.membership,
            DOMAINS,
            room_settings.groups(sweep_interval=1e9),
            admission=GroupGate(self.store, self.runtime, DOMAINS),
        )
        await self.groups.start()
        for followed in (self.users, self.acls, self.quotas):
            await followed.start()

    def compactor(self, settings: CompactionSettings) -> Compactor:
        return Compactor(
            CompactorStores(self.streams, self.objects, bucket_is_ours),
            self.runtime,
            LocalUnitWriter(self.objects, self.runtime),
            MemoryTables(self.world.catalog, self.runtime),
            self.stored_topics,
            settings,
            LOG,
        )

    # --- what clients do

    async def append(self, topic: Topic, partition: int, count: int = 1) -> None:
        """One batch, one object, one entry each."""
        stream = topic.streams[partition]
        for _ in range(count):
            sequence = self.world.appended.get(stream, 0)
            self.world.appended[stream] = sequence + 1
            record = Record(0, self.runtime.wall_ms(), b"key", b"%d of %d" % (sequence, stream), ())
            data = twin.encode([record], producer_id=7, producer_epoch=0, base_sequence=sequence)
            [batch] = validate(data, max_batch_bytes=MANY, max_decompressed_bytes=MANY)
            await self.log.append(stream, batch, memoryview(data))

    async def commit(self, group_id: str, topic: Topic, offset: int = 1) -> ErrorCode:
        assert self.groups is not None
        now = self.runtime.wall_ms()
        offsets = {(topic.name, 0): CommittedOffset.at(offset, 0, "", now, topic_id=topic.topic_id)}

        def commit_with(token: object) -> classic.CommitCheck:
            return classic.CommitCheck(token, group_id, "", -1, 9, None)

        return await self.groups.commit(group_id, commit_with, offsets)

    # --- what runs in the background

    async def clean(self) -> list[BaseException]:
        """One round of everything that ever deletes; what any of it raised."""
        assert self.groups is not None
        groups = self.groups
        raised: list[BaseException] = []
        cleaning = self.compactor(CLEANING)

        async def look() -> None:
            groups.view.look()

        async def compact() -> None:
            await cleaning.run_cycle(everything=True)

        rounds: list[Callable[[], Awaitable[object]]] = [
            self.topics.read_all,
            look,
            lambda: sweep(groups),
            self.topics.sweep_deleted,
            self.retention.once,
            self.log.collector.run,
            self.log._lifecycle.forget_closed,
            self._pack,
            self.clocks._look,
            compact,
        ]
        for _ in range(3):
            for one in rounds:
                try:
                    await one()
                except Exception as error:  # the test says which are allowed: none
                    raised.append(error)
            await asyncio.sleep(6.0)
        return raised

    async def _pack(self) -> None:
        for packing in self.log._packing:
            await packing.run()


@dataclass
class World:
    state: MemoryState = field(default_factory=MemoryState)
    bucket: MemoryBucket = field(default_factory=MemoryBucket)
    catalog: MemoryCatalog = field(default_factory=MemoryCatalog)
    appended: dict[int, int] = field(default_factory=dict)  # batches, by stream
    topics: dict[str, Topic] = field(default_factory=dict)
    wal_ids: dict[UUID, int] = field(default_factory=dict)  # the stream of each WAL object, by its id
    first: Process = field(init=False)
    closed_long_ago: int = field(init=False)
    second: Process = field(init=False)

    async def found(self) -> None:
        """`orders` is what values are rewritten of, `other` what goes on beside it, `gone` was deleted."""
        self.first, self.second = Process(self, 1), Process(self, 2)
        await self.first.start()
        keep = {"retention.ms": str(int(RETENTION_SECONDS * 1000))}
        for name, partitions in (("orders", 2), ("other", 1), ("gone", 1)):
            new = NewTopic(name, partitions, config=keep)
            self.topics[name] = await self.first.topics.create(new)
        await self._fill(3)
        keeping = self.first.compactor(KEEPING)
        await keeping.run_cycle(everything=True)
        await self._fill(2)
        await keeping.run_cycle(everything=True)
        await asyncio.sleep(2 * RETENTION_SECONDS)
        await self.second.start()
        await self._fill(3)  # these are young: retention takes the files, and leaves these
        await self.first.log.allocate_producer_id()
        for group, by in (("rests", self.first), ("led", self.second)):
            for topic in self.topics.values():
                assert await by.commit(group, topic) is ErrorCode.NONE
        assert self.first.groups is not None
        [resting] = self.first.groups.active()
        self.first.groups.forget(resting)
        await self.first.groups.configs.alter("rests", lambda _: {SESSION_TIMEOUT: "50000"})
        await self._say_who_may_do_what()
        await CompactionRequests(self.first.store, self.first.runtime).ask(self.topics["orders"])
        await Migrations(self.first.store, self.first.runtime).begin("orders", MIGRATION)
        await MigrationLeases(self.first.store, self.first.runtime).hold("orders")
        await self._let_a_group_come()
        await self.first.topics.delete("gone")
        await self._clean_a_stream()
        await self._leave_an_object_behind()
        await self._carry()
        await self._refer_to_a_segment()
        await self._close_a_stream_long_ago()
        await self.first.clocks._beat()
        await asyncio.sleep(1.0)

    async def _fill(self, count: int) -> None:
        for topic in self.topics.values():
            for partition in range(len(topic.streams)):
                await self.first.append(topic, partition, count)
        for key in self.stored(keys.REFERENCES):
            self.wal_ids[keys.wal_id_of(key)] = int(key.rpartition("/")[2])

    async def _say_who_may_do_what(self) -> None:
        sha_256 = ScramMechanism.SHA_256
        credential = make_credential(sha_256, "pencil", self.first.runtime.random)
        await self.first.users.put(Upsertion("alice", sha_256, credential))
        await self.first.acls.create([ALICE_READS])
        await self.first.quotas.alter(ALICE, {PRODUCER_BYTE_RATE: 1024.0})

    async def _let_a_group_come(self) -> None:
        """From another cluster, with a topic whose stragglers were produced again."""
        domain = keys.domain_of_group("came", DOMAINS)
        put = Put(keys.followed_group("came"), encode_copy(GROUP_COPY))
        await self.first.store.write(domain, [put])
        stragglers = Put(keys.stragglers("orders"), encode_progress(STRAGGLERS))
        backup = Put(keys.BACKUP, encode_stored_backup(StoredBackup(1_700_000_000_000)))
        tally = Put(keys.TALLY, encode_tally(Tally(1, "token")))
        await self.first.store.write(keys.CLUSTER_DOMAIN, [stragglers, tally, backup])

    async def _clean_a_stream(self) -> None:
        """As if the topic had been compacted by key once, and restored."""
        stream = self.topics["orders"].streams[0]
        cleaned = Cleaned((CleanPoint(1, 1_700_000_000_000),))
        put = Put(keys.cleaned(stream), cleaned.encode())
        begun = Put(keys.epochs(stream), encode_epochs(Epochs().begun(1, 0)))
        await self.first.store.write(keys.domain_of_stream(stream, DOMAINS), [put, begun])

    async def _refer_to_a_segment(self) -> None:
        """As of an entry that names a foreign segment which is ours."""
        stream = self.topics["orders"].streams[1]
        put = wal_keys.refer_to_entry(self.first.runtime.uuid(), stream, 7)
        await self.first.store.write(keys.domain_of_stream(stream, DOMAINS), [put])

    async def _leave_an_object_behind(self) -> None:
        """As a broker does that dies between upload and commit."""
        [stream, _] = self.topics["orders"].streams
        wal_id = self.first.runtime.uuid()
        domain = keys.domain_of_stream(stream, DOMAINS)
        path = object_path("local", domain, self.first.runtime.wall_ms(), wal_id)
        staging = wal_keys.Staging(path, (stream,))
        await self.first.store.write(domain, wal_keys.stage(wal_id, staging))
        await self.first.objects.put(path, [b"left behind"])
        self.wal_ids[wal_id] = stream

    async def _carry(self) -> None:
        """Two carried entries at the end of the second partition, one of them filed."""
        self.first.log.carry(True)
        for topic in (self.topics["orders"], self.topics["other"]):
            await self.first.append(topic, -1, 2)
        self.first.log.carry(False)

    async def _close_a_stream_long_ago(self) -> None:
        [stream] = await self.first.log.create_streams(1)
        await self.first.log.close_streams([stream])
        then = self.first.runtime.wall_ms() - (KEEP_CLOSED_DAYS + 2) * 24 * 3_600_000
        await self.first.store.write(keys.domain_of_stream(stream, DOMAINS), [note_closed(stream, then)])
        self.closed_long_ago = stream

    # --- what is there

    def records(self) -> dict[str, StoredValue]:
        now = asyncio.get_running_loop().time()
        found: dict[str, StoredValue] = {}
        for number in range(DOMAINS):
            entries = self.state.domain(number, now).entries
            found |= {key: entry.record for key, entry in entries.items()}
        return found

    def stored(self, prefix: str = keys.ROOT) -> list[str]:
        return sorted(key for key in self.records() if key.startswith(prefix))

    def rewrite(self, key: str, value: bytes) -> None:
        """As a newer build would, or a broken disk: the key's session, if it has one, stays."""
        now = asyncio.get_running_loop().time()
        for number in range(DOMAINS):
            entry = self.state.domain(number, now).entries.get(key)
            if entry is not None:
                # Versions of the state are numbers that no other write gets: this one is out of their way.
                entry.record = replace(entry.record, value=value, version=entry.record.version + (1 << 40))
                return
        raise KeyError(key)

    def everything(self) -> set[str]:
        """All that can be deleted, one line each."""
        found = {f"key {key}" for key in self.records()}
        found |= {f"object {path}" for path in self.bucket.objects}
        for name, table in self.catalog.tables.items():
            found.add(f"table {name}")
            found |= {f"snapshot {snapshot.number} of {name}" for snapshot in table.snapshots}
            found |= {f"file {path} in the table {name}" for path in table.newest.files}
        return found

    def streams_in(self, line: str) -> set[int]:
        """The streams that such a line is about."""
        about = {
            stream for wal_id, stream in self.wal_ids.items() if wal_id.hex in line or str(wal_id) in line
        }
        for topic in self.topics.values():
            if f" {topic.name}" in line or f"/{topic.name}" in line or topic.topic_id.hex in line:
                about |= set(topic.streams)
            about |= {
                stream
                for stream in topic.streams
                if f"/{keys.number(stream)}/" in f"{line}/" or f"stream={stream}/" in line
            }
        return about
