"""A linked topic at its source: what counts as all of it, and what a fence needs to be seen."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from structlog.testing import capture_logs
from tests.unit.daemons.simulated_source import RECORD, SimulatedCluster

from dray.broker.topics.errors import InvalidConfig
from dray.kafka.client.cluster import Cluster
from dray.kafka.client.errors import RequestFailed
from dray.kafka.protocol import ErrorCode
from dray.metadata.memory import MemoryStore
from dray.migration.live import moving_topic
from dray.migration.live.leader_reads import MirrorMemory
from dray.migration.live.moving_topic import Here, MovingTopic, SourceCluster, UsersLook
from dray.migration.live.stragglers import PartitionProgress, ProducedStragglers, Straggling
from dray.migration.record import ASSIGNING, TRANSACTIONS, MigrationState
from dray.migration.source.fences import AclFence, AclsBefore, FenceRefused, SizeFence, StoppedFence
from dray.migration.source.source import Failure, Leadership, LinkedAs, Probe, SourceTopic
from dray_simulation.kernel.loop import run
from dray_simulation.kernel.runtime import SimulatedRuntime

LINKED = LinkedAs(RECORD.source_topic_id, RECORD.partitions)


def whole(cluster: SimulatedCluster) -> SourceTopic:
    return SourceTopic(cast(Cluster, cluster), "orders", LINKED)


async def test_the_whole_topic_is_learnt() -> None:
    source = whole(SimulatedCluster())
    await source.learn()
    assert source.leaderships == {0: Leadership(1, 3), 1: Leadership(1, 3)}


@pytest.mark.parametrize(
    ("changed", "code", "text"),
    [
        ({"topic_id": UUID(int=9)}, ErrorCode.INVALID_PARTITIONS, "has the id .*9, and .*6 was linked"),
        ({"leaders": (1, 1, 1)}, ErrorCode.INVALID_PARTITIONS, "has 3 partitions at the source, and 2 here"),
        ({"leaders": (1, -1)}, ErrorCode.LEADER_NOT_AVAILABLE, "orders-1 has no leader"),
    ],
    ids=["another topic", "more partitions", "no leader"],
)
async def test_less_or_another_is_no_source_of_a_switch(
    changed: dict[str, Any], code: ErrorCode, text: str
) -> None:
    """A partition that is left out would stay the source's, with its topic switched."""
    cluster = SimulatedCluster()
    source = whole(cluster)
    await source.learn()
    before = dict(source.leaderships)
    for name, value in changed.items():
        setattr(cluster, name, value)
    with pytest.raises(RequestFailed, match=text) as refused:
        await source.learn()
    assert refused.value.code == code
    assert source.leaderships == before


class ProbedTopic(SourceTopic):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.answers: list[Probe] = []

    async def probe(self, partitions: Collection[int]) -> dict[int, tuple[Leadership, Probe] | Failure]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return {each: (self.leaderships[each], answer) for each in partitions}


def topic_with(answers: list[Probe]) -> MovingTopic:
    cluster = cast(Cluster, SimulatedCluster())
    source = SourceCluster(cluster, cluster, None, cast(Any, SimpleNamespace(cluster=cluster)))
    made = MovingTopic(
        "orders", RECORD, Here(*[cast(Any, None)] * 5), source, SimulatedRuntime(1), memory=MirrorMemory(1)
    )
    made.source = ProbedTopic(cluster, "orders", LINKED)
    made.source.answers = answers
    return made


def test_a_fence_is_refused_where_the_source_refuses_us_already() -> None:
    async def ask() -> None:
        with pytest.raises(
            FenceRefused, match="refuses what we write to partition 0 before there is a fence"
        ):
            await topic_with([Probe.FENCED])._check_open()
        await topic_with([Probe.FENCED, Probe.FENCED, Probe.OPEN])._check_open()  # just lifted
        assert await topic_with([Probe.FENCED]).before_fence("stopped") == {}

    run(ask())


@pytest.mark.parametrize(
    ("before", "noted"),
    [
        (AclsBefore(True, False), {"allows_rest": "true"}),
        (AclsBefore(False, False), {"allows_rest": "false"}),
        (AclsBefore(False, True), {"allows_rest": "false", "is_denied": "true"}),
    ],
)
def test_what_the_operator_had_before_the_fence_is_noted(
    before: AclsBefore, noted: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def found(*_: object) -> AclsBefore:
        return before

    monkeypatch.setattr(moving_topic, "acls_before", found)
    assert run(topic_with([Probe.OPEN]).before_fence("acl")) == noted


@pytest.mark.parametrize("is_lifted", [True, False])
def test_a_fence_of_ours_that_was_left_is_named(is_lifted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that was lifted just now, which a broker has not heard of, is waited for."""
    asked = 0

    async def found(*_: object) -> AclsBefore:
        nonlocal asked
        asked += 1
        if is_lifted and asked == 3:
            return AclsBefore(True, False)
        raise FenceRefused("a fence of an earlier switch is up")

    async def ask() -> None:
        if is_lifted:
            assert await topic_with([Probe.OPEN]).before_fence("acl") == {"allows_rest": "true"}
        else:
            with pytest.raises(FenceRefused, match="of an earlier switch"):
                await topic_with([Probe.FENCED]).before_fence("acl")

    monkeypatch.setattr(moving_topic, "acls_before", found)
    run(ask())


def test_the_fence_is_as_the_record_says() -> None:
    made = topic_with([Probe.OPEN])
    acl = made.fence("acl", {"allows_rest": "true"})
    assert isinstance(acl, AclFence)
    assert acl.allows_rest
    assert not acl.is_denied
    assert not cast(AclFence, made.fence("acl", {"allows_rest": "false"})).allows_rest
    assert cast(AclFence, made.fence("acl", {"allows_rest": "false", "is_denied": "true"})).is_denied
    size = made.fence("size", {"max.message.bytes": "1000"})
    assert isinstance(size, SizeFence)
    assert size.before == "1000"
    assert cast(SizeFence, made.fence("size", {})).before is None
    assert isinstance(made.fence("stopped", {}), StoppedFence)


def test_configs_that_cannot_be_followed_do_not_hold_up_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    class Groups:
        rounds = 0

        async def follow(self, _: str) -> int:
            self.rounds += 1
            return 3

    async def refused(*_: object) -> None:
        raise InvalidConfig("these two cannot stand together")

    made = topic_with([Probe.OPEN])
    made._cluster = replace(made._cluster, groups=cast(Any, Groups()))
    monkeypatch.setattr(moving_topic, "follow_configs", refused)
    with capture_logs() as logs:
        for _ in range(3):
            assert run(made.follow(replace(RECORD, state=MigrationState.MIRRORING))) == 3
    assert [each["event"] for each in logs] == ["configs are not followed"], "once, not every few seconds"


def test_what_was_produced_again_is_counted_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the alert would go on until the topic has moved, whatever an operator does."""

    async def found(*_: object) -> dict[int, Straggling]:
        return {0: Straggling(10, 14, 14), 1: Straggling(10, 12, 12)}

    async def play() -> None:
        runtime = SimulatedRuntime(1)
        store = MemoryStore(runtime)
        made = topic_with([Probe.OPEN])
        made._here = made._here._replace(metadata=store)
        assert await made.stragglers(RECORD) == {0: 4, 1: 2}
        produced = ProducedStragglers(store, runtime, "orders", RECORD.topic_id)

        async def producer() -> tuple[int, int]:
            return 1 << 48, 0

        await produced.begin(producer)
        await produced.advance(PartitionProgress(0, 13, 2))
        await produced.advance(PartitionProgress(1, 12, 2))
        assert await made.stragglers(RECORD) == {0: 1}

    monkeypatch.setattr(moving_topic, "find_stragglers", found)
    monkeypatch.setattr(moving_topic, "boundaries_of", found)
    run(play())


LEDGER, FLINK = ["ledger"], ["flink"]


@pytest.mark.parametrize(
    ("users", "allows", "refusal"),
    [
        (UsersLook(), [], ""),
        (UsersLook(LEDGER), [], "transactions are written to orders, which Dray does not take (ledger): "),
        (UsersLook(LEDGER), [TRANSACTIONS], ""),
        (
            UsersLook([], FLINK),
            [TRANSACTIONS],
            "consumers of flink assign partitions of orders to themselves",
        ),
        (UsersLook(LEDGER, FLINK), [ASSIGNING], "transactions are written to orders"),
        (UsersLook(LEDGER, FLINK), [ASSIGNING, TRANSACTIONS], ""),
    ],
)
def test_nobody_is_left_behind_without_a_word(users: UsersLook, allows: list[str], refusal: str) -> None:
    found = users.refusal("orders", allows)
    assert found.startswith(refusal)
    assert bool(found) == bool(refusal)


def test_a_switch_is_refused_by_who_uses_the_topic_at_that_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    async def found(*_: object) -> UsersLook:
        return UsersLook(LEDGER, FLINK)

    async def ask() -> None:
        made = topic_with([Probe.OPEN])
        with pytest.raises(FenceRefused, match="transactions are written to orders"):
            await made.check_users([])
        with pytest.raises(FenceRefused, match="--consumers-stopped"):
            await made.check_users([TRANSACTIONS])
        await made.check_users([TRANSACTIONS, ASSIGNING])
        assert made.source.leaderships, "the topic was looked at anew"

    monkeypatch.setattr(moving_topic, "look_for_users", found)
    run(ask())
