"""The switch against a classic source at work: what it decides is right, and each rule is needed for that."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from tests.unit.migration.source.classic_source import (
    ClassicFence,
    ClassicSource,
    DrayDestination,
    Outcome,
    Stored,
    Write,
    play,
    switch_of,
)

from dray.kafka.client.errors import RequestFailed
from dray.kafka.protocol import ErrorCode
from dray.migration.source.partition_switch import Next, PartitionSwitch
from dray.migration.source.source import Leadership, Probe, SourceEnd, SourceProducer
from dray_simulation.kernel.loop import run
from dray_simulation.kernel.runtime import SimulatedRuntime

SEEDS = range(60)


def outcomes(**options: object) -> list[Outcome]:
    return [run(play(seed, **options)) for seed in SEEDS]  # type: ignore[arg-type]


def faults(found: list[Outcome]) -> list[str]:
    return [fault for outcome in found for fault in outcome.faults]


def test_a_switch_loses_nothing_and_ends() -> None:
    found = outcomes()
    assert faults(found) == []
    assert sum(outcome.switched for outcome in found) > len(SEEDS) / 2
    assert any("has lost records" in outcome.why for outcome in found), "unclean elections are among them"
    assert any("not ready within" in outcome.why for outcome in found)


def test_producers_that_differ_lead_back() -> None:
    found = outcomes(forgets=True)
    assert faults(found) == []
    assert any("producers differ from the source's: producer" in outcome.why for outcome in found)


Mutation = Callable[[pytest.MonkeyPatch], dict[str, object]]


def no_probe(_: pytest.MonkeyPatch) -> dict[str, object]:
    return {"is_probed": False}


def measured_once(_: pytest.MonkeyPatch) -> dict[str, object]:
    return {"moment": 0.0}


def end_by_high_watermark(patch: pytest.MonkeyPatch) -> dict[str, object]:
    measured = PartitionSwitch.measured

    def shorter(self: PartitionSwitch, end: SourceEnd, now: float) -> None:
        cut = SourceEnd(end.leadership, 0, end.high_watermark, end.high_watermark, end.high_watermark)
        measured(self, cut, now)

    patch.setattr(PartitionSwitch, "measured", shorter)
    return {"moment": 0.0}


def producers_not_compared(patch: pytest.MonkeyPatch) -> dict[str, object]:
    def content(self: PartitionSwitch, *_: object) -> None:
        self._compared = True

    patch.setattr(PartitionSwitch, "compared", content)
    return {"forgets": True}


def nothing_taken_over(patch: pytest.MonkeyPatch) -> dict[str, object]:
    compared = PartitionSwitch.compared

    def content(self: PartitionSwitch, *told: object) -> None:
        compared(self, *told)  # type: ignore[arg-type]
        self.taken_over = frozenset()

    patch.setattr(PartitionSwitch, "compared", content)
    return {}


# The first seeds that notice. Another order of what is asked moves them: then look for new ones.
NOTICED = [
    (no_probe, 3),
    (measured_once, 98),
    (end_by_high_watermark, 98),
    (producers_not_compared, 0),
    (nothing_taken_over, 4),
]


@pytest.mark.parametrize(("mutation", "seed"), NOTICED, ids=[mutation.__name__ for mutation, _ in NOTICED])
def test_each_rule_is_needed(mutation: Mutation, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    options = mutation(monkeypatch)
    assert run(play(seed, **options)).faults  # type: ignore[arg-type]


async def grown_late() -> tuple[dict[int, int], DrayDestination]:
    """A super user, whom no ACL stops, writes to one partition while another is still being mirrored."""
    runtime = SimulatedRuntime(1)
    source = ClassicSource(runtime, Random(1), partitions=2)
    target = DrayDestination(source, runtime, Random(1), forgets=False)
    slow = source.partitions[1]
    slow.log.append(Stored(Write(1, 0), 0))
    slow.high_watermark = 1
    mirror = runtime.spawn(target.mirror(0), "mirror")

    async def late() -> None:
        await runtime.sleep(2)
        early = source.partitions[0]
        early.log.append(Stored(Write(2, 0), 0))
        early.high_watermark = 1
        target.logs[1].extend(slow.log)

    tasks = [mirror, runtime.spawn(late(), "late")]
    found = await switch_of(source, target, ClassicFence(source), runtime).run()
    for task in tasks:
        task.cancel()
    return dict(found), target


def test_all_partitions_are_looked_at_once_more() -> None:
    boundaries, target = run(grown_late())
    assert boundaries == {0: 1, 1: 1}
    assert [len(log) for log in target.logs.values()] == [1, 1]


class NewLeader(ClassicSource):
    """Its leaders say where the log ends only when asked for the third time."""

    asked = 0

    async def measure_one(self, partition: int) -> SourceEnd:
        self.asked += 1
        if self.asked < 3:
            raise RequestFailed("cannot list the offsets", ErrorCode.OFFSET_NOT_AVAILABLE)
        return await super().measure_one(partition)


def test_a_leader_that_does_not_know_the_end_yet_is_asked_again() -> None:
    """Kafka answers so from an election on, until the new leader's replicas have followed it."""

    async def work() -> dict[int, int]:
        runtime = SimulatedRuntime(1)
        source = NewLeader(runtime, Random(1), partitions=1)
        target = DrayDestination(source, runtime, Random(1), forgets=False)
        return dict(await switch_of(source, target, ClassicFence(source), runtime).run())

    assert run(work()) == {0: 0}


HERE = Leadership(1, 7)


def settled(end: int, leadership: Leadership = HERE) -> SourceEnd:
    return SourceEnd(leadership, 0, end, end, end)


def fenced() -> PartitionSwitch:
    switch = PartitionSwitch(is_probed=True, moment_seconds=0.1)
    switch.probed(HERE, Probe.FENCED)
    return switch


def test_the_steps_in_their_order() -> None:
    switch = PartitionSwitch(is_probed=True, moment_seconds=0.1)
    assert switch.next is Next.PROBE
    switch.probed(HERE, Probe.OPEN)
    assert switch.next is Next.PROBE
    switch.probed(HERE, Probe.FENCED)
    assert switch.next is Next.MEASURE
    switch.measured(settled(5), 1.0)
    switch.measured(settled(5), 1.05)
    assert switch.next is Next.MEASURE, "the moment is not over"
    switch.measured(settled(5), 1.1)
    assert switch.next is Next.MIRROR
    with pytest.raises(ValueError, match="the next step is to mirror"):
        _ = switch.boundary
    switch.mirrored(5)
    assert switch.next is Next.COMPARE
    switch.compared(HERE, 5, [], [])
    assert switch.next is Next.DECIDE
    assert switch.boundary == 5


def test_growth_begins_the_moment_again() -> None:
    switch = fenced()
    switch.measured(settled(5), 1.0)
    switch.measured(settled(6), 1.2)
    assert switch.next is Next.MEASURE
    switch.measured(settled(6), 1.25)
    assert switch.next is Next.MEASURE
    switch.measured(settled(6), 1.3)
    assert switch.next is Next.MIRROR


@pytest.mark.parametrize(
    "end",
    [SourceEnd(HERE, 0, 4, 5, 5), SourceEnd(HERE, 0, 5, 5, 6)],
    ids=["a transaction is open", "a replica is behind"],
)
def test_an_end_that_is_not_settled_is_none(end: SourceEnd) -> None:
    switch = fenced()
    switch.measured(end, 1.0)
    switch.measured(end, 2.0)
    assert switch.next is Next.MEASURE


def test_another_leadership_is_probed_again() -> None:
    switch = fenced()
    switch.measured(settled(5, Leadership(1, 8)), 1.0)
    assert switch.next is Next.PROBE


def test_what_was_mirrored_beyond_the_end_leads_back() -> None:
    switch = fenced()
    switch.mirrored(6)
    switch.measured(settled(5), 1.0)
    switch.measured(settled(5), 2.0)
    assert switch.next is Next.GO_BACK
    assert switch.why_back == (
        "the source ends at 5, and 6 was mirrored: the source has lost records (an unclean election?)"
    )


def test_a_history_that_is_no_longer_the_sources_leads_back() -> None:
    switch = fenced()
    switch.measured(settled(5), 1.0)
    switch.measured(settled(5), 2.0)
    switch.mirrored(5)
    switch.compared(HERE, 3, [], [])
    assert switch.next is Next.GO_BACK
    assert switch.why_back is not None
    assert switch.why_back.startswith("the source's history differs from offset 3 on, and 5 was mirrored")


def test_producers_that_the_log_says_nothing_of_are_taken_over() -> None:
    switch = fenced()
    switch.measured(settled(5), 1.0)
    switch.measured(settled(5), 2.0)
    switch.mirrored(5)
    same, other = SourceProducer(1, 0, 3), SourceProducer(2, 1, 4)
    switch.compared(HERE, 5, [same, other], [same, SourceProducer(9, 0, 0)])
    assert switch.next is Next.DECIDE
    assert switch.taken_over == {other}


@pytest.mark.parametrize("ours", [SourceProducer(1, 0, 2), SourceProducer(1, 0, 4), SourceProducer(1, 1, 3)])
def test_producers_that_the_log_knows_otherwise_lead_back(ours: SourceProducer) -> None:
    switch = fenced()
    switch.measured(settled(5), 1.0)
    switch.measured(settled(5), 2.0)
    switch.mirrored(5)
    switch.compared(HERE, 5, [SourceProducer(1, 0, 3)], [ours])
    assert switch.next is Next.GO_BACK
    assert switch.why_back == (
        "producers differ from the source's: producer 1 (epoch 0, sequence 3 there; "
        f"epoch {ours.epoch}, sequence {ours.last_sequence} here)"
    )
