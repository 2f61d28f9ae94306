"""The switch of a topic: each partition through its steps until all of them are Dray's, or back.

Partitions are decided one by one, and a decision is final: so none is decided before every partition could
be. A successor of a migrator that died repeats the steps; what is decided already is asked of the target.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from dray.client.cluster import PASSING
from dray.client.errors import AuthenticationFailed, ClientError, RequestFailed
from dray.runtime import Runtime

from .fences import WriterFence
from .partition_switch import Next, PartitionSwitch
from .source import Source, SourceProducer

PAUSE_SECONDS: Final = 0.05


class Target(Protocol):
    """The topic at Dray while it moves."""

    async def end(self, partition: int) -> int:
        """How far it is mirrored."""
        ...

    async def last_epoch(self, partition: int) -> int | None:
        """That of the last mirrored batch, as the source had given it. None where nothing is mirrored."""
        ...

    async def producers(self, partition: int) -> Collection[SourceProducer]:
        """Those of the batches in the log, up to its end."""
        ...

    async def boundary(self, partition: int) -> int | None:
        """None while the source owns the partition."""
        ...

    async def decide(
        self, partition: int, boundary: int, taken_over: Collection[SourceProducer] = ()
    ) -> bool:
        """One compare-and-set. False where the log has grown in between. `taken_over`: producers that are
        known as the source knows them from then on."""
        ...


class SwitchFailed(Exception):
    """The topic is the source's as before, and its fence is lifted. One line says why."""


class SwitchStuck(Exception):
    """Some partitions are Dray's, others cannot become so: the fence stays, as there is no way back. One line
    says which, and why."""


@dataclass(frozen=True, slots=True)
class TopicSwitch:
    """`run` once. With `give_up_seconds` over, and nothing decided, the fence is lifted again.
    `spent_seconds` of them are over already: others have tried before."""

    source: Source
    target: Target
    fence: WriterFence
    runtime: Runtime
    give_up_seconds: float
    pause_seconds: float = PAUSE_SECONDS
    spent_seconds: float = 0.0

    async def run(self) -> Mapping[int, int]:
        """The boundary of each partition. Raises `SwitchFailed` or `SwitchStuck`, or `FenceRefused` before
        anything is changed."""
        await self.source.learn()
        decided = await self._decided()
        if not decided:
            await self.fence.check(self.source)
        try:
            await self.fence.put_up()
            switches = await self._until_all_can(decided)
            for partition, switch in sorted(switches.items()):
                decided[partition] = await self._decide(partition, switch)
        except BaseException as failure:
            # Forward only: once a partition is Dray's, its writers must not be let in at the source again.
            if decided or await self._decided():
                if isinstance(failure, SwitchFailed):
                    raise SwitchStuck(f"{failure}; partitions {sorted(decided)} are Dray's") from failure
                raise
            await self.fence.lift()
            raise
        return decided

    async def _decided(self) -> dict[int, int]:
        found = {each: await self.target.boundary(each) for each in sorted(self.source.leaderships)}
        return {partition: boundary for partition, boundary in found.items() if boundary is not None}

    async def _until_all_can(self, decided: Collection[int]) -> dict[int, PartitionSwitch]:
        # With a way back, it is taken in time. Without one, every try has the time that it needs.
        spent = 0.0 if decided else self.spent_seconds
        deadline = self.runtime.monotonic() + self.give_up_seconds - spent
        switches = {
            partition: PartitionSwitch(self.fence.is_probed, self.fence.moment_seconds)
            for partition in self.source.leaderships
            if partition not in decided
        }
        while True:
            for partition, switch in switches.items():
                await self._step(partition, switch)
                if switch.why_back is not None:
                    raise SwitchFailed(f"partition {partition}: {switch.why_back}")
            if _all_can(switches) and await self._look_once_more(switches):
                return switches
            if self.runtime.monotonic() >= deadline:
                partition, switch = next(
                    (partition, switch)
                    for partition, switch in switches.items()
                    if switch.next is not Next.DECIDE
                )
                raise SwitchFailed(
                    f"partition {partition} was not ready within {self.give_up_seconds:g} s: it still has to "
                    f"{switch.next.value}"
                )
            await self.runtime.sleep(self.pause_seconds)

    async def _look_once_more(self, switches: Mapping[int, PartitionSwitch]) -> bool:
        """The first was ready long before the last: nothing may have changed since."""
        for partition, switch in switches.items():
            await self._measure(partition, switch)
        return _all_can(switches)

    async def _measure(self, partition: int, switch: PartitionSwitch) -> None:
        try:
            switch.measured(await self.source.measure(partition), self.runtime.monotonic())
        except (ClientError, RequestFailed) as failure:
            await self._begin_again(switch, failure)

    async def _step(self, partition: int, switch: PartitionSwitch) -> None:
        try:
            match switch.next:
                case Next.PROBE:
                    switch.probed(*await self.source.probe(partition))
                case Next.MEASURE:
                    await self._measure(partition, switch)
                case Next.MIRROR:
                    switch.mirrored(await self.target.end(partition))
                case Next.COMPARE:
                    await self._compare(partition, switch)
                case Next.DECIDE | Next.GO_BACK:
                    pass
        except (ClientError, RequestFailed) as failure:
            await self._begin_again(switch, failure)

    async def _compare(self, partition: int, switch: PartitionSwitch) -> None:
        epoch = await self.target.last_epoch(partition)
        mirrored = await self.target.end(partition)
        history_end = mirrored if epoch is None else await self.source.end_of_epoch(partition, epoch)
        leadership, theirs = await self.source.producers(partition)
        switch.compared(leadership, history_end, theirs, await self.target.producers(partition))

    async def _begin_again(self, switch: PartitionSwitch, failure: ClientError | RequestFailed) -> None:
        """Where a leader has moved or cannot be reached. Every other failure goes on up."""
        if isinstance(failure, AuthenticationFailed):
            raise failure
        if isinstance(failure, RequestFailed) and failure.code not in PASSING:
            raise failure
        switch.leader_changed()
        with suppress(RequestFailed, ClientError):  # the deadline ends it
            await self.source.learn()

    async def _decide(self, partition: int, switch: PartitionSwitch) -> int:
        boundary = switch.boundary
        if not await self.target.decide(partition, boundary, switch.taken_over):
            found = await self.target.boundary(partition)
            if found is None:
                raise SwitchFailed(
                    f"partition {partition} has changed at Dray while it was fenced at the source: another "
                    "migrator is at work; try again"
                )
            return found
        return boundary


def _all_can(switches: Mapping[int, PartitionSwitch]) -> bool:
    return all(switch.next is Next.DECIDE for switch in switches.values())
