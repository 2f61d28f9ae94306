"""A topic moves from three Kafkas to Dray while producers of every kind work, and things go wrong.

The ledger is what producers were told. After every move: each acknowledged record is there once, at the
offset that its producer was given, in its order; and below the boundary Dray serves the source's bytes,
the leader epoch aside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from tests.services.clients.steady import STEADY
from tests.services.live_move import WITH_ACLS, LiveMove, read_topic, records_of
from tests.services.log_referee import EARLIEST, LATEST, LATEST_TIERED, fetch_error, offset_of
from tests.services.move_trials import (
    ASSIGNED,
    PARTITIONS,
    SECONDS,
    begun,
    boundaries,
    check_moved,
    go_on,
    leader,
    new_topic,
    producing,
    write,
)
from tests.services.target import ON_CLUSTER, ON_KAFKA
from tests.services.tiered_cluster import START_SECONDS, VERSIONS, TieredCluster
from tests.services.tiered_history import wait_for
from tests.services.tiered_kafka import require_tiering

from dray.kafka.protocol import ErrorCode

pytestmark = [
    pytest.mark.skipif(ON_KAFKA or ON_CLUSTER, reason="it starts brokers of its own"),
    pytest.mark.soak,  # three Kafkas
]

TIERED = {
    "remote_storage_enable": "true",
    "segment_bytes": str(1 << 20),
    "local_retention_bytes": "1",
    "retention_ms": "-1",
}
SETTINGS = {"give_up_time": "20s", "straggler_watch": "1s", "group_interval": "1s"}


@pytest.fixture(scope="module", params=VERSIONS)
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TieredCluster]:
    version: str = request.param
    require_tiering(version)
    with TieredCluster(tmp_path_factory.mktemp("source"), version, WITH_ACLS) as started:
        yield started


@pytest.fixture(scope="module")
def move(kafka: TieredCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveMove]:
    made = LiveMove(tmp_path_factory.mktemp("dray"), kafka, SETTINGS)
    with made.dray:
        yield made


@pytest.fixture
def admin(kafka: TieredCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap})


@pytest.fixture
def make_topic(
    request: pytest.FixtureRequest, kafka: TieredCluster, admin: AdminClient
) -> Callable[..., str]:
    """A topic at the source, with a leader for each partition."""

    def make(assigned: Sequence[Sequence[int]] = ASSIGNED, **configs: str) -> str:
        return new_topic(kafka, admin, request.node.name, assigned, **configs)

    return make


def write_tiered(move: LiveMove, topic: str) -> None:
    """Two segments of each partition and more, of which the last is never tiered."""
    source = move.kafka.bootstrap
    write(source, topic, "before " + "x" * 900, 6_000)
    wait_for(
        "two segments are tiered",
        lambda: all(offset_of(source, topic, each, LATEST_TIERED) > 1_500 for each in range(PARTITIONS)),
        SECONDS,
    )


# --- the move


def test_four_clients_go_on_through_link_and_switch(move: LiveMove, make_topic: Callable[..., str]) -> None:
    """The same processes all the time, none of which hears of an error."""
    topic = make_topic()
    write(move.kafka.bootstrap, topic, "before", 500)
    with move.migrator() as migrator:
        move.link(topic)
        move.until(topic, "mirroring")
        with producing(move.dray.bootstrap, topic, STEADY) as ledger:
            go_on(ledger)
            move.switch(topic)
            move.until(topic, "switched", "moved")
            go_on(ledger)
        check_moved(move, topic, ledger)
        assert migrator.alive
    assert "Traceback" not in migrator.log_path.read_text()


def test_producers_at_the_source_are_fenced_and_go_on_at_dray(
    move: LiveMove, make_topic: Callable[..., str]
) -> None:
    """The bounded pause: they are told that they may not write there any more, and lose nothing."""
    topic = make_topic()
    with move.migrator():
        move.link(topic)
        move.until(topic, "mirroring")
        with producing(move.kafka.bootstrap, topic, ("java", "librdkafka")) as ledger:
            go_on(ledger)
            move.switch(topic)
            move.until(topic, "switched", "moved")
        found = check_moved(move, topic, ledger, failures=True)
        write(move.dray.bootstrap, topic, "after", 20)
        ends = {number: offset_of(move.dray.bootstrap, topic, number, LATEST) for number in found}
        assert ends == {number: boundary + 10 for number, boundary in found.items()}


def test_a_tiered_topic_moves_with_its_history_in_place(
    move: LiveMove, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(**TIERED)
    write_tiered(move, topic)
    with move.migrator():
        move.link(topic, tiered=True)
        move.until(topic, "mirroring")
        with producing(move.dray.bootstrap, topic) as ledger:
            go_on(ledger)
            move.switch(topic)
            move.until(topic, "switched", "moved")
            go_on(ledger)
        check_moved(move, topic, ledger)


@pytest.mark.parametrize("copied", [False, True])
def test_a_source_topic_that_is_deleted_takes_what_was_borrowed(
    move: LiveMove, make_topic: Callable[..., str], admin: AdminClient, copied: bool
) -> None:
    """Kafka erases the tier of a deleted topic. What was copied before stays; what was not is an error, and
    is never taken for the end of the log."""
    topic = make_topic(**TIERED)
    write_tiered(move, topic)
    with move.migrator():
        move.link(topic, tiered=True)
        move.until(topic, "mirroring")
        move.switch(topic)
        found = boundaries(move.until(topic, "switched", "moved"))
        if copied:  # the source may go before its last group has left
            move.run("copy", topic, "--execute")
        admin.delete_topics([topic])[topic].result(SECONDS)
        wait_for("the tier is erased", lambda: not list(move.kafka.tier.rglob(f"{topic}-*/*.log")), SECONDS)
        if copied:
            assert len(records_of(read_topic(move.dray.bootstrap, topic, 1)[0])) == found[0]
        else:
            assert fetch_error(move.dray.bootstrap, topic, 0, 0) == ErrorCode.KAFKA_STORAGE_ERROR
            assert offset_of(move.dray.bootstrap, topic, 0, EARLIEST) == 0
        assert fetch_error(move.dray.bootstrap, topic, 0, found[0] - 1) == ErrorCode.NONE
        write(move.dray.bootstrap, topic, "after", 10, partition=0)
        assert offset_of(move.dray.bootstrap, topic, 0, LATEST) == found[0] + 10


@pytest.mark.parametrize("moment", ["streams taken", "laid down", "mirroring"])
def test_segments_that_the_source_deletes_while_it_is_linked_are_no_hole(
    move: LiveMove, make_topic: Callable[..., str], admin: AdminClient, moment: str
) -> None:
    """Its retention goes on. The log begins later then, here and there."""
    topic = make_topic(**TIERED)
    write_tiered(move, topic)
    with move.migrator():
        if moment == "mirroring":
            move.link(topic, tiered=True)
        else:
            move.link(topic, tiered=True, dies=moment)
        entry = ConfigEntry("retention.bytes", str(1 << 20), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(SECONDS)
        wait_for(
            "the source has deleted segments",
            lambda: (
                all(offset_of(move.kafka.bootstrap, topic, each, EARLIEST) > 0 for each in range(PARTITIONS))
                and not list(move.kafka.tier.rglob(f"{topic}-*/{0:020}-*.log"))
            ),
            SECONDS,
        )
        if moment != "mirroring":
            move.link(topic, tiered=True)
        move.until(topic, "mirroring")
        for partition in range(PARTITIONS):
            wait_for(
                "the log begins where the source's does",
                lambda p=partition: (  # type: ignore[misc]
                    offset_of(move.dray.bootstrap, topic, p, EARLIEST)
                    == offset_of(move.kafka.bootstrap, topic, p, EARLIEST)
                ),
                SECONDS,
            )
        write(move.kafka.bootstrap, topic, "meanwhile", 20)
        move.switch(topic)
        check_moved(move, topic)


# --- transactions


def test_a_transaction_open_at_the_fence_is_waited_for(
    move: LiveMove, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    producer = begun(move.kafka.bootstrap, topic)
    for number in range(10):
        producer.produce(topic, f"decided {number}", partition=number % PARTITIONS)
    assert producer.flush(SECONDS) == 0
    with move.migrator():
        move.link(topic)
        move.until(topic, "mirroring")
        move.switch(topic, "acl", "--without-transactions")
        assert move.status(topic)["state"] in ("pending", "mirroring"), "it waits, or gave up"
        producer.commit_transaction(SECONDS)
        if move.until(topic, "mirroring", "switched", "moved")["state"] == "mirroring":
            move.switch(topic, "acl", "--without-transactions")
        found = check_moved(move, topic)
    assert found == {0: 6, 1: 6}, "five records each, and a marker"


def test_a_transaction_that_does_not_end_lets_the_switch_go_back(
    move: LiveMove, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    producer = begun(move.kafka.bootstrap, topic)
    producer.produce(topic, b"undecided", partition=0)
    assert producer.flush(SECONDS) == 0
    with move.migrator():
        move.link(topic)
        move.until(topic, "mirroring")
        move.switch(topic, "acl", "--without-transactions")
        wait_for("the fence is lifted", lambda: bool(move.status(topic).get("why")), SECONDS)
        assert move.status(topic)["state"] == "mirroring"
        producer.abort_transaction(SECONDS)
        write(move.kafka.bootstrap, topic, "lifted", 10)
        move.switch(topic, "acl", "--without-transactions")
        check_moved(move, topic)


# --- the source goes on living


def test_a_leader_of_the_source_dies_in_the_middle(
    move: LiveMove, make_topic: Callable[..., str], admin: AdminClient
) -> None:
    topic = make_topic()
    node = move.kafka.nodes[2]
    with move.migrator():
        move.link(topic)
        move.until(topic, "mirroring")
        with producing(move.dray.bootstrap, topic) as ledger:
            go_on(ledger)
            node.kill()
            try:
                move.switch(topic)
                move.until(topic, "switched", "moved")
                go_on(ledger)
            finally:
                node.start(START_SECONDS)
        check_moved(move, topic, ledger)


def test_the_start_follows_what_the_source_deletes(
    move: LiveMove, make_topic: Callable[..., str], admin: AdminClient
) -> None:
    topic = make_topic()
    write(move.kafka.bootstrap, topic, "before", 1_000)
    with move.migrator():
        move.link(topic)
        move.until(topic, "mirroring")
        for done in admin.delete_records([TopicPartition(topic, 0, 300)]).values():
            assert done.result(SECONDS).low_watermark == 300
        wait_for(
            "the start is the source's",
            lambda: offset_of(move.dray.bootstrap, topic, 0, EARLIEST) == 300,
            SECONDS,
        )
        assert offset_of(move.dray.bootstrap, topic, 1, EARLIEST) == 0
        move.switch(topic)
        check_moved(move, topic)


@pytest.mark.parametrize("start", [300, 500], ids=["some", "all"])
def test_what_the_source_deletes_before_it_is_mirrored_is_a_hole_that_is_said(
    move: LiveMove, make_topic: Callable[..., str], admin: AdminClient, start: int
) -> None:
    """The migrator was away for longer than the source keeps records."""
    topic = make_topic()
    write(move.kafka.bootstrap, topic, "before", 100, idempotent=False)
    with move.migrator():
        move.link(topic)
        wait_for("it is mirrored", lambda: mirrored_to(move, topic) == {0: 50, 1: 50}, SECONDS)
    write(move.kafka.bootstrap, topic, "meanwhile", 900, idempotent=False)
    for done in admin.delete_records([TopicPartition(topic, 0, start)]).values():
        assert done.result(SECONDS).low_watermark == start
    with move.migrator():
        wait_for("it is mirrored", lambda: mirrored_to(move, topic) == {0: 500, 1: 500}, SECONDS)
        assert [each["skipped"] for each in move.status(topic)["partitions"]] == [start - 50, 0]
        wait_for(
            "the start is the source's",
            lambda: offset_of(move.dray.bootstrap, topic, 0, EARLIEST) == start,
            SECONDS,
        )
        assert fetch_error(move.dray.bootstrap, topic, 0, 60) == ErrorCode.OFFSET_OUT_OF_RANGE
        move.switch(topic)
        check_moved(move, topic)


def mirrored_to(move: LiveMove, topic: str) -> dict[int, int]:
    return {each["partition"]: each["mirrored"] for each in move.status(topic)["partitions"]}


def test_a_source_that_forgets_what_it_gave_away_stops_the_move(
    move: LiveMove, make_topic: Callable[..., str], admin: AdminClient
) -> None:
    """An unclean election. What was mirrored stays, and is never truncated."""
    topic = make_topic(((2, 3), (1, 3)), unclean_leader_election_enable="true")
    nodes = move.kafka.nodes
    write(move.kafka.bootstrap, topic, "both have it", 100)
    with move.migrator():
        move.link(topic)
        move.until(topic, "mirroring")
        nodes[3].terminate(START_SECONDS)
        try:
            wait_for("node 2 leads", lambda: leader(admin, topic) == 2, SECONDS)
            write(move.kafka.bootstrap, topic, "one has it", 200, partition=0)
            wait_for(
                "it is mirrored",
                lambda: offset_of(move.dray.bootstrap, topic, 0, LATEST) == 250,
                SECONDS,
            )
            nodes[2].kill()
            nodes[3].start(START_SECONDS)
            wait_for("node 3 leads", lambda: leader(admin, topic) == 3, SECONDS)
            write(move.kafka.bootstrap, topic, "another history", 150, partition=0)
            wait_for("it is said", lambda: bool(move.stopped(topic)), SECONDS)
            assert offset_of(move.dray.bootstrap, topic, 0, LATEST) == 250
            move.switch(topic, code=None)
            wait_for("no switch", lambda: move.status(topic)["state"] == "mirroring", SECONDS)
            values = [value for _, value in records_of(read_topic(move.dray.bootstrap, topic, 1)[0])]
            assert values[50:] == [f"one has it {number}".encode() for number in range(200)]
            move.run("abort", topic, "--execute")
        finally:
            for node in nodes.values():
                if not node.alive:
                    node.start(START_SECONDS)


def test_a_topic_that_is_deleted_at_the_source_is_said_and_not_forgotten(
    move: LiveMove, make_topic: Callable[..., str], admin: AdminClient
) -> None:
    topic = make_topic()
    write(move.kafka.bootstrap, topic, "before", 100)
    with move.migrator():
        move.link(topic)
        move.until(topic, "mirroring")
        wait_for(
            "all is mirrored",
            lambda: all(offset_of(move.dray.bootstrap, topic, each, LATEST) == 50 for each in range(2)),
            SECONDS,
        )
        admin.delete_topics([topic])[topic].result(SECONDS)
        wait_for("it is said", lambda: bool(move.stopped(topic)), SECONDS)
        assert [len(records_of(each)) for each in read_topic(move.dray.bootstrap, topic, 2).values()] == [
            50,
            50,
        ]


def test_a_straggler_is_named_and_produced_on_request(move: LiveMove, make_topic: Callable[..., str]) -> None:
    """The operator said that producers are stopped. One was not."""
    topic = make_topic()
    write(move.kafka.bootstrap, topic, "before", 20)
    with move.migrator():
        move.link(topic)
        move.until(topic, "mirroring")
        move.switch(topic, "stopped")
        found = boundaries(move.until(topic, "switched", "moved"))
        write(move.kafka.bootstrap, topic, "late", 3, partition=0)
        said = move.run("stragglers", topic, code=1)
        assert str(found[0]) in said
        move.run("stragglers", topic, "--produce", "--execute", "--bootstrap", move.dray.bootstrap)
        values = [value for _, value in records_of(read_topic(move.dray.bootstrap, topic, 1)[0])]
        assert values[-3:] == [b"late 0", b"late 1", b"late 2"]


# --- migrators that die


@pytest.mark.parametrize("state", ["attaching", "mirroring", "pending"])
def test_a_migrator_that_is_killed_has_a_successor(
    move: LiveMove, make_topic: Callable[..., str], state: str
) -> None:
    topic = make_topic()
    write(move.kafka.bootstrap, topic, "before", 500)
    migrator = move.migrator()
    with ExitStack() as stack:
        stack.callback(migrator.kill)
        if state != "attaching":
            migrator.start()
        move.link(topic)
        if state == "attaching":
            migrator.start()
            migrator.kill()
        else:
            move.until(topic, "mirroring")
        ledger = stack.enter_context(producing(move.dray.bootstrap, topic))
        if state == "mirroring":
            go_on(ledger, 10)
            migrator.kill()
        move.switch(topic)
        migrator.kill()
        stack.enter_context(move.migrator(2))
        move.until(topic, "switched", "moved")
        go_on(ledger, 10)
        stack.pop_all().close()
    check_moved(move, topic, ledger)


def test_a_migrator_that_slept_through_the_switch_does_no_harm(
    move: LiveMove, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    with move.migrator(1) as sleeper:
        move.link(topic)
        move.until(topic, "mirroring")
        with producing(move.dray.bootstrap, topic) as ledger:
            go_on(ledger)
            move.switch(topic)
            sleeper.freeze()
            with move.migrator(2):
                move.until(topic, "switched", "moved")
                sleeper.wake()
                go_on(ledger)
        check_moved(move, topic, ledger)


def test_an_abort_gives_the_topic_back_to_its_source(move: LiveMove, make_topic: Callable[..., str]) -> None:
    topic = make_topic()
    write(move.kafka.bootstrap, topic, "before", 20)
    with move.migrator():
        move.link(topic)
        move.until(topic, "mirroring")
        move.run("abort", topic, "--execute")
        wait_for(
            "it is gone at Dray",
            lambda: topic not in AdminClient({"bootstrap.servers": move.dray.bootstrap}).list_topics().topics,
            SECONDS,
        )
        write(move.kafka.bootstrap, topic, "after", 20)
        move.link(topic)
        move.switch(topic)
        assert check_moved(move, topic) == {0: 20, 1: 20}
