"""A topic moves from three Kafkas to Dray while processes are killed and stand still, at every step: a leader
of the source, a broker of Dray that forwards to it, the migrator, the commands. Then the step is repeated, or
the move aborted. The ledger of the producers is outside of all of them.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import pytest
from confluent_kafka.admin import AdminClient
from tests.services.dray import DrayProcess, freeze_process
from tests.services.live_move import WITH_ACLS, LiveMove
from tests.services.log_referee import LATEST, offset_of
from tests.services.move_trials import (
    ASSIGNED,
    SECONDS,
    begun,
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

from dray.migration.attach import steps as attach
from dray.migration.live import migration as live_migration

pytestmark = [
    pytest.mark.skipif(ON_KAFKA or ON_CLUSTER, reason="it starts brokers of its own"),
    pytest.mark.soak,  # three Kafkas
]

FORWARD = ("followed", "fence noted", "fence up", "decided", "switched", "moved")
BACK = ("back", "forbidden", "lifted", "fence forgotten")
"""Steps of a migrator."""
NO_WAY_BACK = FORWARD[FORWARD.index("decided") :]
LINKING = ("begun", "streams taken", "laid down", "publishing", "published", "attached")
"""Steps of `drayd migrate link`."""
ABORTING = ("forbidden", "lifted", "fence forgotten", "aborting", "topic deleted", "closed", "swept")
"""Of `drayd migrate abort`."""


def test_all_steps_are_tried() -> None:
    assert {*FORWARD, *BACK} == set(live_migration.FAILPOINTS)
    # "uploaded" and "offsets" are those of a dead cluster
    assert {*LINKING, *ABORTING, "uploaded", "offsets"} >= set(attach.FAILPOINTS)


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
    settings = {"give_up_time": "60s", "straggler_watch": "1s", "group_interval": "1s"}
    made = LiveMove(tmp_path_factory.mktemp("dray"), kafka, settings)
    with made.dray:
        yield made


@pytest.fixture
def admin(kafka: TieredCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap})


@pytest.fixture
def topic(request: pytest.FixtureRequest, kafka: TieredCluster, admin: AdminClient) -> str:
    return new_topic(kafka, admin, request.node.name, ASSIGNED)


def is_stopped(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "T"


@contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """In the end it goes on, whoever has stopped it."""
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def switch_until_done(move: LiveMove, topic: str) -> None:
    """As an operator does: once more where it went back."""
    while move.until(topic, "mirroring", "switched", "moved")["state"] == "mirroring":
        wait_for("the fence is lifted", lambda: not move.status(topic)["fence_to_lift"], SECONDS)
        move.switch(topic, code=None)


# --- a leader of the source


@pytest.mark.parametrize("moment", ["mirroring", "fence noted", "fence up", "decided"])
def test_a_leader_of_the_source_stands_still(move: LiveMove, topic: str, moment: str) -> None:
    """Its connections stay open, and nothing comes on them. It wakes up when another leads."""
    node = move.kafka.nodes[2]
    step = None if moment == "mirroring" else f"{moment}=STOP:{node.pid}"
    with move.migrator(step=step), standing_still(node.pid):
        move.link(topic)
        move.until(topic, "mirroring")
        with producing(move.dray.bootstrap, topic) as ledger:
            go_on(ledger)
            if moment == "mirroring":
                freeze_process(node.pid)
                go_on(ledger)
                end = max(offset for each, offset in ledger.producers[0].acknowledged.values() if each == 0)
                wait_for(
                    "it is mirrored from another leader",
                    lambda: offset_of(move.dray.bootstrap, topic, 0, LATEST) > end,
                    SECONDS,
                )
            move.switch(topic)
            wait_for("it stands still", lambda: is_stopped(node.pid), SECONDS)
            switch_until_done(move, topic)
            go_on(ledger)
            assert is_stopped(node.pid), "all the time"
            os.kill(node.pid, signal.SIGCONT)
            go_on(ledger)
        check_moved(move, topic, ledger)


# --- a broker that forwards


@dataclass
class Forwarders:
    """Two brokers of Dray."""

    brokers: dict[int, DrayProcess] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        return ",".join(each.bootstrap for each in self.brokers.values())

    def of(self, topic: str) -> DrayProcess:
        """The one to which producers go."""
        return self.brokers[leader(AdminClient({"bootstrap.servers": self.bootstrap}), topic)]


@pytest.fixture
def forwarders(move: LiveMove) -> Iterator[Forwarders]:
    with move.broker(7) as second:
        [first] = AdminClient({"bootstrap.servers": move.dray.bootstrap}).list_topics(
            timeout=60
        ).brokers.keys() - {7}
        found = Forwarders({first: move.dray, 7: second})
        yield found
        if not move.dray.alive:
            move.dray.start(START_SECONDS)


@pytest.mark.parametrize("moment", ["mirroring", "fence up", "decided"])
@pytest.mark.parametrize("act", ["KILL", "STOP"])
def test_a_forwarder_is_gone_in_the_middle(
    move: LiveMove, forwarders: Forwarders, topic: str, act: str, moment: str
) -> None:
    move.link(topic)
    with producing(forwarders.bootstrap, topic, ("librdkafka", "java")) as ledger:
        go_on(ledger)
        forwarder = forwarders.of(topic)
        step = None if moment == "mirroring" else f"{moment}={act}:{forwarder.pid}"
        with ExitStack() as stack:
            stack.enter_context(move.migrator(step=step))
            if moment == "mirroring":
                forwarder.kill() if act == "KILL" else forwarder.freeze()
                go_on(ledger)
            move.switch(topic)
            switch_until_done(move, topic)
            if act == "STOP":
                stack.enter_context(standing_still(forwarder.pid))
                assert is_stopped(forwarder.pid)
            else:
                assert not forwarder.alive
            go_on(ledger)
            if act == "KILL":
                forwarder.kill()
                forwarder.start(START_SECONDS)
        go_on(ledger)
    check_moved(move, topic, ledger)


# --- a migrator


def fail_the_switch(move: LiveMove, topic: str, stack: ExitStack) -> Callable[[], None]:
    """A transaction that does not end, until the function that is returned is called."""
    producer = begun(move.kafka.bootstrap, topic)
    producer.produce(topic, b"undecided", partition=0)
    assert producer.flush(SECONDS) == 0
    ended: list[bool] = []

    def end() -> None:
        if not ended:
            producer.abort_transaction(SECONDS)
            ended.append(True)

    stack.callback(end)
    return end


@pytest.mark.parametrize("aborted", [False, True], ids=["repeated", "aborted"])
@pytest.mark.parametrize("step", [*FORWARD, *BACK])
def test_a_migrator_dies_at_a_step(move: LiveMove, topic: str, step: str, aborted: bool) -> None:
    write(move.kafka.bootstrap, topic, "before", 100)
    with ExitStack() as stack:
        end = fail_the_switch(move, topic, stack) if step in BACK else lambda: None
        first = move.migrator(step=step)
        if step in BACK:
            first.settings["DRAY_UPSTREAM__GIVE_UP_TIME"] = "2s"
        stack.enter_context(first)
        move.link(topic)
        if step != "followed":
            move.until(topic, "mirroring")
            move.switch(topic)
        first.until_killed(SECONDS)
        end()
        if aborted:
            said = move.run("abort", topic, "--execute", code=1 if step in NO_WAY_BACK else 0)
            assert step not in NO_WAY_BACK or "there is no way back" in said or "is Dray's" in said
        if aborted and step not in NO_WAY_BACK:
            write(move.kafka.bootstrap, topic, "let in", 20)
            move.link(topic)
        with move.migrator(2):
            if step == "followed" or step in BACK or aborted:
                with producing(move.dray.bootstrap, topic) as ledger:
                    go_on(ledger, 20)
            if move.status(topic)["state"] not in ("switched", "moved"):
                move.switch(topic, code=None)
            switch_until_done(move, topic)
            check_moved(move, topic)
            move.until(topic, "moved")


@pytest.mark.parametrize("aborted", [False, True], ids=["repeated", "aborted"])
@pytest.mark.parametrize("step", [*FORWARD, *BACK])
def test_a_migrator_stands_still_at_a_step(move: LiveMove, topic: str, step: str, aborted: bool) -> None:
    """It wakes up when another has gone on, or when its migration is gone and the topic linked anew."""
    write(move.kafka.bootstrap, topic, "before", 100)
    with ExitStack() as stack:
        end = fail_the_switch(move, topic, stack) if step in BACK else lambda: None
        first = move.migrator(step=f"{step}=STOP:")
        if step in BACK:
            first.settings["DRAY_UPSTREAM__GIVE_UP_TIME"] = "2s"
        stack.enter_context(first)
        stack.enter_context(standing_still(first.pid))
        move.link(topic)
        if step != "followed":
            move.until(topic, "mirroring")
            move.switch(topic)
        wait_for("it stands still", lambda: is_stopped(first.pid), SECONDS)
        end()
        taken_back = aborted and step not in NO_WAY_BACK
        if aborted:
            move.run("abort", topic, "--execute", code=0 if taken_back else 1)
        if taken_back:
            write(move.kafka.bootstrap, topic, "let in", 20)
            move.link(topic)
        with move.migrator(2):
            if taken_back:
                os.kill(first.pid, signal.SIGCONT)
            if move.status(topic)["state"] not in ("switched", "moved"):
                move.switch(topic, code=None)
            switch_until_done(move, topic)
            os.kill(first.pid, signal.SIGCONT)
            move.until(topic, "moved")
            check_moved(move, topic)


# --- the commands


@pytest.mark.parametrize("aborted", [False, True], ids=["repeated", "aborted"])
@pytest.mark.parametrize("step", LINKING)
def test_a_link_dies_at_a_step(move: LiveMove, topic: str, step: str, aborted: bool) -> None:
    write(move.kafka.bootstrap, topic, "before", 100)
    with move.migrator():
        move.link(topic, dies=step)
        if aborted:
            move.run("abort", topic, "--execute")
        if aborted or step != "attached":
            move.link(topic)
        move.until(topic, "mirroring")
        write(move.kafka.bootstrap, topic, "after", 100)
        move.switch(topic)
        assert check_moved(move, topic) == {0: 100, 1: 100}


@pytest.mark.parametrize("step", ABORTING)
def test_an_abort_dies_at_a_step(move: LiveMove, topic: str, step: str) -> None:
    write(move.kafka.bootstrap, topic, "before", 100)
    move.link(topic)
    with move.migrator(step="fence up") as first:
        move.switch(topic)
        first.until_killed(SECONDS)
    move.run("abort", topic, "--execute", code=-signal.SIGKILL, step=step)
    move.run("abort", topic, "--execute")
    write(move.kafka.bootstrap, topic, "let in", 100)
    with move.migrator(2):
        move.link(topic)
        move.switch(topic)
        assert check_moved(move, topic) == {0: 100, 1: 100}
