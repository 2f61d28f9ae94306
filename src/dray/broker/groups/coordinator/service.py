"""Groups of any kind, as the API handlers ask for them: who coordinates one, and if it is this broker, do it.

A group is loaded when it is first asked for and no other broker holds its lease. A group that does not exist
costs no lease: what can be answered about nothing is answered so.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from typing import Any, Final

import structlog

from dray.base.runtime import (
    ExpiryClock,
    FairTurns,
    KeptTask,
    Runtime,
    UndoubtedClock,
    keep_running,
    owner_of,
    run_once,
)
from dray.broker.cluster import Broker, Membership, brokers_in
from dray.broker.groups import classic, consumer
from dray.broker.groups.coordinator import patterns
from dray.broker.groups.coordinator.active import ActiveGroup
from dray.broker.groups.coordinator.admission import Admission
from dray.broker.groups.coordinator.configs import GroupConfigs
from dray.broker.groups.coordinator.contract import (
    GroupsObserver,
    GroupUnavailable,
    NotCoordinator,
    Unreachable,
    classic_settings,
    consumer_settings,
)
from dray.broker.groups.coordinator.lease import Lease, LeaseHolder, Leases
from dray.broker.groups.coordinator.ledger import Ledger, Place
from dray.broker.groups.coordinator.machines import Event, Machines, State, decode_state, kind_of
from dray.broker.groups.coordinator.storage import GroupKind, GroupStorage
from dray.broker.groups.coordinator.sweep import forget_topics, sweep_forever
from dray.broker.groups.coordinator.topic_view import TopicView
from dray.broker.groups.offsets import CommittedOffset
from dray.broker.settings import GroupsSettings
from dray.broker.topics import Topics, TopicsUnavailable
from dray.kafka.protocol import ErrorCode
from dray.metadata import keys
from dray.metadata.contract import MetadataError, MetadataStore

_log = structlog.get_logger(__name__)

_JUDGED_AT_ONCE: Final = 1000
_PAUSE: Final = 3
"""After a new pattern was judged, the next one waits for so many times as long."""


class Groups:
    def __init__(
        self,
        store: MetadataStore,
        runtime: Runtime,
        topics: Topics,
        membership: Membership,
        domains: int,
        settings: GroupsSettings,
        *,
        is_dead: Callable[[LeaseHolder], bool] = lambda _: False,
        observer: GroupsObserver | None = None,
        expiry: ExpiryClock | None = None,
        admission: Admission | None = None,
    ) -> None:
        """`is_dead` says of a lease's holder that its process is certainly gone."""
        self.expiry = expiry or UndoubtedClock(runtime)
        self.observer = observer or GroupsObserver()
        self.settings = settings
        self.domains = domains
        self.store = store
        self.runtime = runtime
        self.view = TopicView(
            runtime, topics, self.settings.topic_interval, self._on_topics_gone, self._on_topics_came
        )
        self.admission = admission or Admission()
        self.configs = GroupConfigs(store, runtime, consumer_settings(settings))
        self.machines = Machines(
            classic_settings(settings).held_by(store.limits.value_bytes), self.configs.settings_of, self.view
        )
        self.topics = topics
        self._membership = membership
        me = membership.me
        self.leases = Leases(
            store,
            runtime,
            LeaseHolder(me.broker_id, me.machine, me.process),
            domains=domains,
            ttl=self.settings.session_ttl,
            lost=self._on_session_lost,
            is_dead=is_dead,
        )
        membership.listen(self.leases.renumber)
        self._judging = FairTurns(1)
        self._active: dict[str, ActiveGroup] = {}
        self._loading: dict[str, asyncio.Task[ActiveGroup | GroupUnavailable]] = {}
        self._tasks: list[KeptTask] = []
        self._census: Mapping[tuple[str, str], int] = {}
        self._counted_at = float("-inf")

    async def start(self) -> None:
        self.view.look()
        await self.configs.start()
        self._tasks = [
            keep_running(self.runtime, "topics of groups", self.view.follow),
            keep_running(self.runtime, "sweep groups", partial(sweep_forever, self)),
        ]

    async def stop(self) -> None:
        """Give every group up, so that another broker can take it at once."""
        for task in self._tasks:
            await task.stop()
        self.give_up()
        await self.configs.stop()
        await self.leases.stop()

    def give_up(self) -> None:
        """Answer all that is parked: those clients had better ask another broker."""
        for group in list(self._active.values()):
            group.drop("this broker is stopping", by_choice=True)

    # --- who coordinates

    async def find_coordinator(self, group_id: str, zone: str | None = None) -> Broker:
        """The holder of the lease, if it lives; else who should take it, in the zone of the client that asks.
        Raises `Unreachable`."""
        active = self._active.get(group_id)
        if active is not None and active.usable():
            return self._membership.me
        try:
            holder = await self.leases.holder(group_id)
        except MetadataError as error:
            raise Unreachable(str(error)) from error
        if holder is not None and not self.leases.is_dead(holder):
            broker = self._membership.find(holder.broker_id)
            if broker is not None:
                return broker
        return self.candidate(group_id, zone)

    def candidate(self, group_id: str, zone: str | None = None) -> Broker:
        """The broker that should take a group without a coordinator: the same on every broker, and mostly
        the same when others come and go. One of the zone, if that has any: members that ask from several at
        once are sent to several, of which the first to take the lease has the group."""
        brokers = self._membership.brokers()
        near = brokers_in(zone, brokers)
        return max(near or brokers, key=lambda broker: _weight(group_id, broker.broker_id))

    def is_candidate(self, group_id: str) -> bool:
        return self.candidate(group_id).broker_id == self._membership.me.broker_id

    def tells_of(self, group_id: str, holder: LeaseHolder | None) -> bool:
        """Whether this broker is the one that lists a group with this holder of its lease."""
        if holder is None or self.leases.is_dead(holder):
            return self.is_candidate(group_id)
        if self.leases.is_me(holder):
            return True
        return self._membership.find(holder.broker_id) is None and self.is_candidate(group_id)

    # --- asking a group

    async def ask(self, group_id: str, event_with: Callable[[object], Event]) -> Any:
        """The machine's answer to an event, made with the token that it gets. Raises `GroupUnavailable`."""
        return (await self._ask(group_id, event_with))[1]

    async def _ask(
        self, group_id: str, event_with: Callable[[object], Event]
    ) -> tuple[ActiveGroup | None, Any]:
        loop = asyncio.get_running_loop()
        group = self._in_memory(group_id)
        if group is None:
            # Of many that come at once to a group that is to be, the first finds that out for all.
            if await self._is_vacant(group_id) and not self._is_coming(group_id):
                alone: asyncio.Future[Any] = loop.create_future()
                stepped = self.machines.step(None, event_with(alone), alone, self.runtime.wall_ms())
                if not stepped.persist:
                    [(_, answer)] = stepped.replies
                    return None, answer
            group = await self._load(group_id)
        future: asyncio.Future[Any] = loop.create_future()
        group.ask(event_with(future), future)
        if future.done():
            return group, future.result()
        answer = await future
        group.storage.check_lease()
        return group, answer

    async def state(self, group_id: str) -> State:
        """The group as it is now; None where there is none. Raises `GroupUnavailable`."""
        group = await self.existing(group_id)
        return None if group is None else group.state

    async def existing(self, group_id: str) -> ActiveGroup | None:
        group = self._in_memory(group_id)
        if group is None:
            if await self._is_vacant(group_id):
                return None
            group = await self._load(group_id)
            if not group.usable():
                raise NotCoordinator(f"the lease of group '{group_id}' may have ended")
        return None if group.state is None else group

    # --- heartbeats of KIP-848

    async def consumer_heartbeat(
        self, beat: consumer.Heartbeat
    ) -> consumer.HeartbeatAnswer | consumer.Refusal:
        if beat.member_epoch == 0:
            beat = await self._prepared(beat)
        answer: consumer.HeartbeatAnswer | consumer.Refusal = await self.ask(beat.group_id, lambda _: beat)
        if answer is consumer.PATTERN_UNJUDGED and beat.topic_regex is not None:
            fault = await self._fault_of(beat.topic_regex, owner_of(beat.client_host.removeprefix("/")))
            judged = beat._replace(regex_is_judged=True, regex_fault=fault)
            answer = await self.ask(beat.group_id, lambda _: judged)
        return answer

    async def _fault_of(self, pattern: str, owner: str) -> str | None:
        """One at a time, by turns of addresses, and with pauses: RE2 holds the interpreter, and with many
        threads of it the event loop would come round once a second."""
        async with self._judging.turn(owner):
            began = self.runtime.monotonic()
            fault = await self.runtime.in_thread(patterns.fault_of, pattern)
            await self.runtime.sleep(_PAUSE * (self.runtime.monotonic() - began))
            return fault

    async def _prepared(self, beat: consumer.Heartbeat) -> consumer.Heartbeat:
        """A member that joins should find the topics that another broker showed it a moment ago."""
        for name in beat.topic_names or ():
            if self.view.shape(name) is None:
                with suppress(TopicsUnavailable):
                    if await self.topics.get(name) is not None:
                        self.view.look()
        return beat

    async def _resolve(self, wanted: consumer.ResolvePatterns) -> tuple[Mapping[str, frozenset[str]], int]:
        self.view.look()
        version, names = self.view.version, self.view.names()
        found = await self.runtime.in_thread(patterns.resolve, wanted.patterns, names)
        if wanted.may_describe is not None:
            hidden = await self._hidden(frozenset().union(*found.values()), wanted.may_describe)
            found = {pattern: matching - hidden for pattern, matching in found.items()}
        return found, version

    async def _hidden(self, names: Collection[str], may_describe: consumer.MayDescribe) -> set[str]:
        """The names of these that a client may not see, some at a time: a pattern may match every topic there
        is."""
        hidden = set()
        for count, name in enumerate(names, 1):
            if not may_describe(name):
                hidden.add(name)
            if count % _JUDGED_AT_ONCE == 0:
                await self.runtime.sleep(0)
        return hidden

    # --- offsets

    async def commit(
        self,
        group_id: str,
        commit_with: Callable[[object], classic.CommitCheck],
        offsets: Mapping[Place, CommittedOffset],
    ) -> ErrorCode:
        """Stored when this returns NONE. Raises `GroupUnavailable`."""
        self.view.look()  # a topic that has offsets has been seen, and so is missed when it goes
        group, verdict = await self._ask(group_id, commit_with)
        if verdict.error is ErrorCode.NONE:
            assert group is not None, "a group that does not exist took a commit"
            started = self.runtime.monotonic()
            await group.ledger.change(offsets)
            self.observer.committed(len(offsets), self.runtime.monotonic() - started)
        error: ErrorCode = verdict.error
        return error

    async def offsets(
        self,
        group_id: str,
        member_id: str | None,
        member_epoch: int,
        wanted: Iterable[Place] = (),
    ) -> Ledger | None:
        """The offsets of a group, to be read at once; None without a group. Raises `GroupUnavailable`: also
        where one of those `wanted` is not here yet."""
        self.view.look()  # a topic that has just come may be one that the group reads elsewhere
        group = await self.existing(group_id)
        if group is None:
            return None
        await group.admitted.check_offsets(group, wanted)
        if isinstance(group.state, consumer.ConsumerGroup):
            refusal = consumer.fetch_fault(group.state, member_id, member_epoch)
            if refusal is not None:
                raise GroupUnavailable(refusal.error, refusal.message)
        return group.ledger

    # --- memory

    def census(self) -> Mapping[tuple[str, str], int]:
        """How many groups this broker looks after, by kind and state. Counted once in a second at most."""
        now = self.runtime.monotonic()
        if now - self._counted_at >= 1.0:
            states = [group.state for group in self.active() if group.state is not None]
            self._census = Counter((kind_of(state), state.state.value) for state in states)
            self._counted_at = now
        return self._census

    def active(self) -> list[ActiveGroup]:
        return [group for group in self._active.values() if group.usable()]

    def is_active(self, group_id: str) -> bool:
        return group_id in self._active

    def _in_memory(self, group_id: str) -> ActiveGroup | None:
        group = self._active.get(group_id)
        if group is not None and not group.usable():
            group.drop()
            return None
        return group

    def _is_coming(self, group_id: str) -> bool:
        return group_id in self._loading or group_id in self._active

    async def _is_vacant(self, group_id: str) -> bool:
        """Whether there is no such group: no record of it, and no broker that might be making one."""
        if self._is_coming(group_id):
            return False
        domain = keys.domain_of_group(group_id, self.domains)
        try:
            await self.store.barrier(domain)
            holder = await self.leases.holder(group_id)
            if holder is not None:
                return False
            if await self.store.get(domain, keys.group(group_id)) is not None:
                return False
        except MetadataError as error:
            raise Unreachable(str(error)) from error
        return not await self.admission.is_expected(group_id)

    async def _load(self, group_id: str) -> ActiveGroup:
        """Callers at the same time share one loading, which goes on when one of them leaves."""
        await self.admission.may_load(group_id)
        task = self._loading.get(group_id)
        if task is None:
            if (group := self._in_memory(group_id)) is not None:
                return group
            task = self.runtime.spawn(self._take_and_load(group_id), f"load group {group_id}")
            self._loading[group_id] = task
            task.add_done_callback(lambda _: self._loading.pop(group_id, None))
        loaded = await asyncio.shield(task)
        if isinstance(loaded, GroupUnavailable):
            raise loaded
        return loaded

    async def _take_and_load(self, group_id: str) -> ActiveGroup | GroupUnavailable:
        """A refusal is an answer for all who wait, and no failure of the task they share."""
        try:
            lease = await self.leases.take(group_id)
        except GroupUnavailable as error:
            return error
        try:
            group = await self._open(group_id, lease)
        except GroupUnavailable as error:
            # Another broker may be able to: of a newer build, say, where this one cannot read the group.
            await self.leases.release(lease)
            return error
        self._active[group_id] = group
        self.observer.taken()
        group.begin()
        self._make_room()
        self._on_topics_gone(
            frozenset(name for name in group.ledger.topics() if self.view.shape(name) is None)
        )
        return group

    async def _open(self, group_id: str, lease: Lease) -> ActiveGroup:
        domain = keys.domain_of_group(group_id, self.domains)
        storage = GroupStorage(self.store, self.runtime, group_id, domain, lease)
        record = await storage.open()
        ledger = Ledger(storage, self.runtime)
        await ledger.load()
        if record is None or record.kind is GroupKind.DELETED:
            # Deleted half, or put by a coordinator that did not hear that it was none any more.
            await ledger.delete_all()
            await storage.delete()
            record = None
        admitted = await self.admission.admit(storage, ledger)
        try:
            state = admitted.made or decode_state(group_id, record)
        except MetadataError as error:
            raise Unreachable(str(error)) from error
        return ActiveGroup(
            storage,
            ledger,
            self.machines,
            self.runtime,
            state=state,
            admitted=admitted,
            resolve=self._resolve,
            dropped=self._on_dropped,
            observer=self.observer,
        )

    def _on_dropped(self, group: ActiveGroup) -> None:
        if self._active.get(group.group_id) is group:
            del self._active[group.group_id]

    def _on_session_lost(self, domain: int) -> None:
        for group in list(self._active.values()):
            if keys.domain_of_group(group.group_id, self.domains) == domain:
                group.drop("the session of its lease has ended")

    def _on_topics_gone(self, names: frozenset[str]) -> None:
        if names and self._active:
            run_once(self.runtime, "offsets of deleted topics", forget_topics, self, names)

    def _on_topics_came(self) -> None:
        """Topics are here that were elsewhere, and maybe groups with them. One that is in memory without
        members would answer as if it had never been elsewhere."""
        for group in list(self._active.values()):
            self.forget(group)
        for group in self._active.values():
            group.admitted.doubt()

    def _make_room(self) -> None:
        """Groups without members stay in memory until there are too many; then the longest unused tenth
        goes, so that the search for them is not repeated at every turn."""
        if len(self._active) <= self.settings.memory_groups:
            return
        idle = sorted(
            (group for group in self._active.values() if group.is_idle()), key=lambda group: group.last_used
        )
        for group in idle[: max(1, len(self._active) // 10)]:
            self.forget(group)

    def forget(self, group: ActiveGroup) -> None:
        """Let an idle group leave this broker's memory, and give its lease up."""
        if group.is_idle():
            group.drop(by_choice=True)
            lease = group.storage.lease
            run_once(self.runtime, "release group", self.leases.release, lease)


def _weight(group_id: str, broker_id: int) -> bytes:
    """A hash in which every bit of both counts: a checksum would favour the same brokers for all groups."""
    return blake2b(f"{broker_id}/{group_id}".encode(), digest_size=8).digest()
