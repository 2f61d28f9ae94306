"""A linked topic at its source: what counts as all of it, and what a fence needs to be seen."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from structlog.testing import capture_logs
from tests.unit.daemon.simulated_source import RECORD, SimulatedCluster

from dray.client.cluster import Cluster
from dray.client.errors import RequestFailed
from dray.daemon import live_topic
from dray.daemon.live_topic import KafkaTopic, Upstream, WholeTopic
from dray.metadata.memory import MemoryStore
from dray.migration.mirror_memory import MirrorMemory
from dray.migration.record import MigrationState
from dray.migration.stragglers import PartitionProgress, ProducedStragglers
from dray.protocol import ErrorCode
from dray.simulation.kernel.loop import run
from dray.simulation.kernel.runtime import SimulatedRuntime
from dray.topics.errors import InvalidConfig
from dray.upstream.fences import AclFence, AclsBefore, FenceRefused, SizeFence, StoppedFence
from dray.upstream.source import Leadership, Probe
from dray.upstream.stragglers import Straggling


def whole(cluster: SimulatedCluster) -> WholeTopic:
    return WholeTopic(cast(Cluster, cluster), "orders", RECORD)


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


class ProbedTopic(WholeTopic):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.answers: list[Probe] = []

    async def probe(self, partition: int) -> tuple[Leadership, Probe]:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return self.leaderships[partition], answer


def topic_with(answers: list[Probe]) -> KafkaTopic:
    class NoRooms:
        mirror = None

    cluster = cast(Cluster, SimulatedCluster())
    upstream = Upstream(cluster, cluster, cast(Any, None))
    made = KafkaTopic(
        "orders", RECORD, cast(Any, NoRooms()), upstream, SimulatedRuntime(1), memory=MirrorMemory(1)
    )
    made.source = ProbedTopic(cluster, "orders", RECORD)
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

    monkeypatch.setattr(live_topic, "acls_before", found)
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

    monkeypatch.setattr(live_topic, "acls_before", found)
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
    made._rooms = cast(Any, SimpleNamespace(topics=None))
    made._upstream = replace(made._upstream, groups=cast(Any, Groups()))
    monkeypatch.setattr(live_topic, "follow_configs", refused)
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
        made._rooms = cast(Any, SimpleNamespace(streams=None, stores=SimpleNamespace(metadata=store)))
        assert await made.stragglers(RECORD) == {0: 4, 1: 2}
        produced = ProducedStragglers(store, runtime, "orders", RECORD.topic_id)

        async def producer() -> tuple[int, int]:
            return 1 << 48, 0

        await produced.begin(producer)
        await produced.advance(PartitionProgress(0, 13, 2))
        await produced.advance(PartitionProgress(1, 12, 2))
        assert await made.stragglers(RECORD) == {0: 1}

    monkeypatch.setattr(live_topic, "find_stragglers", found)
    monkeypatch.setattr(live_topic, "boundaries_of", found)
    run(play())
