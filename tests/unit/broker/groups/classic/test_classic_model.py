"""Random clients, crashes and takeovers on a virtual clock: what must hold whatever they do.

The harness checks after every event that each request is parked or was answered once, that generations do not
go back, that every member has a session and every phase its timer. Here are the promises made to the clients.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, multiple, rule
from tests.unit.broker.groups.classic.harness import Coordinator, subscription

from dray.broker.groups.classic import ClassicGroupSettings, GroupState, JoinAnswer, SyncAnswer
from dray.kafka.protocol import ErrorCode

SESSION_MS = 10_000
PREFERENCES = (("range",), ("range", "sticky"), ("sticky", "range"), ("sticky", "range", "fancy"))
GONE = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID)


@dataclass
class Client:
    """A client that follows the protocol. What it was told is all it knows."""

    coordinator: Coordinator
    instance_id: str | None
    version: int
    preference: int
    topic: str = "orders"
    member_id: str = ""
    generation: int = -1
    told: JoinAnswer | None = None
    """The answer to its join, while it owes a sync."""

    join: int | None = None
    sync: int | None = None
    is_fenced: bool = False
    is_here: bool = True

    def send_join(self) -> None:
        metadata = subscription(self.topic)
        self.told = self.sync = None
        self.join = self.coordinator.join(
            self.member_id,
            version=self.version,
            instance_id=self.instance_id,
            using=[(name, metadata) for name in PREFERENCES[self.preference]],
            session_ms=SESSION_MS,
            rebalance_ms=20_000,
        )

    def send_sync(self) -> None:
        assert self.told is not None
        assignments = []
        if self.told.members and not self.told.skip_assignment:
            generation = self.told.generation
            assignments = [(m.member_id, f"{generation}/{m.member_id}".encode()) for m in self.told.members]
        self.sync = self.coordinator.sync(
            self.member_id, self.generation, assignments, instance_id=self.instance_id
        )

    def send_beat(self) -> None:
        error = self.coordinator.beat(self.member_id, self.generation, self.instance_id)
        if error in GONE:
            self.refused(error)
        elif error is ErrorCode.REBALANCE_IN_PROGRESS and self.join is None:
            self.send_join()

    def refused(self, error: ErrorCode) -> None:
        self.told = None
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id, self.generation = "", -1
        elif error is ErrorCode.ILLEGAL_GENERATION:
            self.generation = -1
        elif error is ErrorCode.FENCED_INSTANCE_ID:
            self.is_fenced = True

    def act(self) -> None:
        """Do what a client of the protocol does next."""
        if self.is_fenced or self.join is not None or self.sync is not None:
            return
        if self.generation < 0:
            self.send_join()
        elif self.told is not None:
            self.send_sync()
        else:
            self.send_beat()


@dataclass
class Generation:
    """What members were told of one generation."""

    protocol: tuple[str | None, str | None]
    leaders: set[str] = field(default_factory=set)
    owners: dict[bytes, str] = field(default_factory=dict)


class ClassicGroupMachine(RuleBasedStateMachine):
    clients = Bundle("clients")

    def __init__(self) -> None:
        super().__init__()
        self.coordinator = Coordinator()
        self.everyone: list[Client] = []
        self.generations: dict[int, Generation] = {}

    @initialize(largest=st.sampled_from([3, 100]), delay=st.sampled_from([0, 3_000]))
    def set_up(self, largest: int, delay: int) -> None:
        self.largest = largest
        self.coordinator.settings = ClassicGroupSettings(
            initial_rebalance_delay_ms=delay, new_member_join_timeout_ms=30_000, largest_group=largest
        )

    # What clients do

    @rule(
        target=clients,
        instance=st.sampled_from([None, None, "one", "two"]),
        version=st.sampled_from([0, 3, 5, 9]),
        preference=st.integers(0, len(PREFERENCES) - 1),
    )
    def start(self, instance: str | None, version: int, preference: int) -> object:
        if len(self.everyone) >= 8 or any(instance and c.instance_id == instance for c in self.everyone):
            return multiple()
        client = Client(self.coordinator, instance, max(version, 5) if instance else version, preference)
        self.everyone.append(client)
        client.send_join()
        self.deliver()
        return client

    @rule(client=clients)
    def act(self, client: Client) -> None:
        if client.is_here:
            client.act()
            self.deliver()

    @rule()
    def all_act(self) -> None:
        for client in self.everyone:
            self.act(client)

    @rule(client=clients, topic=st.sampled_from(["orders", "payments"]))
    def join_again(self, client: Client, topic: str) -> None:
        """Also while a join or a sync of the same client is parked."""
        if client.is_here and not client.is_fenced:
            client.topic = topic
            client.send_join()
            self.deliver()

    @rule(client=clients)
    def sync_again(self, client: Client) -> None:
        if client.is_here and client.told is not None:
            client.send_sync()
            self.deliver()

    @rule(client=clients)
    def commit(self, client: Client) -> None:
        if client.generation >= 0:
            error = self.coordinator.commit(client.member_id, client.generation, client.instance_id)
            group = self.coordinator.group
            if error is ErrorCode.NONE:
                assert group is not None
                assert group.generation == client.generation
                assert client.member_id in group.members

    @rule(client=clients)
    def leave(self, client: Client) -> None:
        if client.is_here and client.member_id:
            self.coordinator.leave((client.member_id, client.instance_id))
            self.deliver()
            self.forget(client)

    @rule(client=clients)
    def crash(self, client: Client) -> None:
        if client.is_here:
            self.forget(client)

    @rule(client=clients)
    def restart(self, client: Client) -> None:
        """As a new process that knows nothing. The old one may still speak, if it was static."""
        if not client.is_here:
            return
        old_id, old_generation = client.member_id, client.generation
        client.member_id, client.generation = "", -1
        client.told = client.join = client.sync = None
        client.is_fenced = False
        client.send_join()
        self.deliver()
        taken_in = client.join is not None or client.member_id
        if client.instance_id is not None and old_generation >= 0 and taken_in:
            assert client.member_id != old_id
            assert self.coordinator.beat(old_id, old_generation, client.instance_id) in (
                ErrorCode.FENCED_INSTANCE_ID,
                ErrorCode.UNKNOWN_MEMBER_ID,
            )

    @rule(member=st.sampled_from(["one", "two"]))
    def admin_removes(self, member: str) -> None:
        self.coordinator.leave(("", member))
        self.deliver()

    @rule()
    def admin_deletes(self) -> None:
        empty = self.coordinator.state in (GroupState.EMPTY, GroupState.DEAD)
        assert (self.coordinator.delete() is ErrorCode.NON_EMPTY_GROUP) is not empty
        if self.coordinator.group is None:
            self.generations.clear()

    # What happens to them

    @rule(milliseconds=st.sampled_from([1, 500, 3_000, 9_999, 10_000, 25_000]))
    def wait(self, milliseconds: int) -> None:
        self.coordinator.advance(milliseconds)
        self.deliver()

    @rule()
    def coordinator_dies(self) -> None:
        before = self.coordinator.group
        self.coordinator.take_over()
        self.deliver()
        after = self.coordinator.group
        if before is not None and after is not None:
            assert after.generation == before.generation, "what members were told is stored"
            assert after.state is not GroupState.PREPARING, "a rebalance that has only begun is not stored"

    @rule()
    def behave(self) -> None:
        """When all who are left follow the protocol, the group settles."""
        for _ in range(80):
            for client in self.everyone:
                if client.is_here:
                    client.act()
                    self.deliver()
            self.coordinator.advance(1_000)
            self.deliver()
        group = self.coordinator.group
        here = {c.member_id for c in self.everyone if not c.is_fenced}
        if group is None:
            assert not here
        elif len(here) <= self.largest:
            assert group.state is (GroupState.STABLE if here else GroupState.EMPTY)
            assert group.members.keys() == here
            assert not group.pending
            assert {c.generation for c in self.everyone if c.is_here and not c.is_fenced} <= {
                group.generation
            }
        else:
            assert len(group.members) <= self.largest

    def forget(self, client: Client) -> None:
        """Nobody is there to read its answers."""
        client.is_here = False
        self.everyone.remove(client)

    # What they are told

    def deliver(self) -> None:
        answers = self.coordinator.answers
        for client in list(self.everyone):
            while client.join in answers:
                joined = self.coordinator.joined(client.join)
                client.join = None
                self.on_join_answer(client, joined)
            if client.sync in answers:
                synced = self.coordinator.answer(client.sync, SyncAnswer)
                client.sync = None
                self.on_sync_answer(client, synced)

    def on_join_answer(self, client: Client, answer: JoinAnswer) -> None:
        if answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            assert client.version >= 4
            assert client.instance_id is None
            client.member_id = answer.member_id
            client.send_join()
        elif answer.error is ErrorCode.NONE:
            assert client.member_id in ("", answer.member_id)
            client.member_id, client.generation, client.told = answer.member_id, answer.generation, answer
            self.on_generation(client, answer)
        elif answer.error is ErrorCode.GROUP_MAX_SIZE_REACHED:
            assert self.largest < 100
            client.member_id, client.generation = "", -1
        elif answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            assert self.coordinator.group is not None
        else:
            assert answer.error in (*GONE, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
            client.refused(answer.error)

    def on_generation(self, client: Client, answer: JoinAnswer) -> None:
        assert answer.protocol_name in PREFERENCES[client.preference]
        protocol = (answer.protocol_type, answer.protocol_name)
        generation = self.generations.setdefault(answer.generation, Generation(protocol))
        assert generation.protocol == protocol, "two protocols in one generation"
        if answer.members and not answer.skip_assignment:
            assert answer.leader_id == answer.member_id
            generation.leaders.add(answer.member_id)
        assert len(generation.leaders) <= 1, "two leaders in one generation"

    def on_sync_answer(self, client: Client, answer: SyncAnswer) -> None:
        if answer.error is not ErrorCode.NONE:
            client.refused(answer.error)
            if answer.error is ErrorCode.REBALANCE_IN_PROGRESS:
                client.generation = -1
            return
        generation = self.generations[client.generation]
        assert (answer.protocol_type, answer.protocol_name) == generation.protocol
        client.told = None
        if answer.assignment:
            assert answer.assignment.startswith(b"%d/" % client.generation), "an assignment of another time"
            # A static member inherits what it had under its old id.
            owner = generation.owners.setdefault(answer.assignment, client.instance_id or client.member_id)
            assert owner in (client.instance_id, client.member_id), "two members with one assignment"

    def teardown(self) -> None:
        if self.everyone:
            self.behave()
        self.coordinator.take_over()


ClassicGroupMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
TestClassicGroups = ClassicGroupMachine.TestCase
