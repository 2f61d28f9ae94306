"""The switch of a topic: each partition through its steps until all of them are Dray's, or back.

Partitions are decided one by one, and a decision is final: so none is decided before every partition could
be. A successor of a migrator that died repeats the steps; the destination says what is decided already.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from dray.base.runtime import AT_A_TIME, Runtime, gather_some
from dray.kafka.client.cluster import PASSING
from dray.kafka.client.errors import AuthenticationFailed, ClientError, RequestFailed
from dray.log.stream_store import StreamStore
from dray.migration.mirror.mirroring import MirroredPlace, MirroredProducer, StreamMirror
from dray.migration.record import MigrationRecord
from dray.migration.source.fences import WriterFence
from dray.migration.source.partition_switch import Next, PartitionSwitch
from dray.migration.source.source import Failure, SourceProducer, SourceTopic

T = TypeVar("T")
Switches: TypeAlias = Mapping[int, PartitionSwitch]

PAUSE_SECONDS: Final = 0.05
_DECISIONS: Final = 32
"""At a time: each may write all producers of its partition."""
_LOOKS: Final = 5
"""How often a look at all ends fits into the questions of a switch: three of them, the fence and its probe,
and what is compared."""
_DECIDES: Final = 4
"""The same of a decision and a look at an end here: it writes the producers, and looks at the record."""


def expected_pause(source_seconds: float, here_seconds: float, partitions: int, moment: float) -> float:
    """For how long writers are fenced once the mirror has caught up, by what one look at all ends took at the
    source, and one here."""
    rounds = -(-partitions // _DECISIONS) / -(-partitions // AT_A_TIME)
    return moment + 2 * PAUSE_SECONDS + _LOOKS * source_seconds + here_seconds * (_DECIDES * rounds + _LOOKS)


class SwitchFailed(Exception):
    """The topic is the source's as before, and its fence is lifted. One line says why."""


class SwitchStuck(Exception):
    """Some partitions are Dray's, others cannot become so: the fence stays, as there is no way back. One line
    says which, and why."""


@dataclass(frozen=True, slots=True)
class TopicSwitch:
    """`run` once. With `give_up_seconds` over, and nothing decided, the fence is lifted again.
    `spent_seconds` of them are over already: others have tried before."""

    source: SourceTopic
    destination: Destination
    fence: WriterFence
    runtime: Runtime
    give_up_seconds: float
    pause_seconds: float = PAUSE_SECONDS
    spent_seconds: float = 0.0
    is_allowed: Callable[[], Awaitable[bool]] | None = None
    """Whether it still is to be decided, if somebody may take that back."""
    on_decision: Callable[[], None] = lambda: None

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
            await self._decide_all(switches, decided)
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
        found = await self._each(sorted(self.source.leaderships), self.destination.boundary)
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
            steps = _steps_of(switches)
            await self._step(switches)
            for partition, switch in switches.items():
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
            if steps == _steps_of(switches):
                await self.runtime.sleep(self.pause_seconds)

    async def _look_once_more(self, switches: Switches) -> bool:
        """The first was ready long before the last: nothing may have changed since."""
        await self._measure(switches)
        return _all_can(switches)

    async def _step(self, switches: Switches) -> None:
        """One step of each, those of a kind together: the writers are fenced, and the source may be far."""
        by_step: dict[Next, dict[int, PartitionSwitch]] = {}
        for partition, switch in switches.items():
            by_step.setdefault(switch.next, {})[partition] = switch
        for step, some in by_step.items():
            match step:
                case Next.PROBE:
                    found = await self._heard(some, await self.source.probe(some))
                    for partition, (leadership, probe) in found.items():
                        some[partition].probed(leadership, probe)
                case Next.MEASURE:
                    await self._measure(some)
                case Next.MIRROR:
                    for partition, end in (await self._each(some, self.destination.end)).items():
                        some[partition].mirrored(end)
                case Next.COMPARE:
                    await self._compare(some)
                case Next.DECIDE | Next.GO_BACK:
                    pass

    async def _measure(self, switches: Switches) -> None:
        found = await self._heard(switches, await self.source.measure(switches))
        for partition, end in found.items():
            switches[partition].measured(end, self.runtime.monotonic())

    async def _compare(self, switches: Switches) -> None:
        epochs = await self._each(switches, self.destination.last_epoch)
        mirrored = await self._each(switches, self.destination.end)
        known = {partition: epoch for partition, epoch in epochs.items() if epoch is not None}
        heard = await self._heard(switches, await self.source.ends_of_epochs(known))
        history = {partition: heard.get(partition) for partition in known}
        theirs = await self._heard(switches, await self.source.producers(switches))
        ours = await self._each(switches, self.destination.producers)
        for partition, (leadership, producers) in theirs.items():
            history_end = history.get(partition, mirrored[partition])
            if history_end is not None:
                switches[partition].compared(leadership, history_end, producers, ours[partition])

    async def _each(
        self, partitions: Collection[int], ask: Callable[[int], Coroutine[Any, Any, T]]
    ) -> dict[int, T]:
        return dict(zip(partitions, await gather_some(map(ask, partitions)), strict=True))

    async def _heard(self, switches: Switches, found: Mapping[int, T | Failure]) -> dict[int, T]:
        """If a leader has moved or cannot be reached, its partitions begin again. Every other failure goes on
        up."""
        answers: dict[int, T] = {}
        for partition, each in found.items():
            if not isinstance(each, ClientError | RequestFailed):
                answers[partition] = each
            elif isinstance(each, AuthenticationFailed) or not _is_passing(each):
                raise each
            else:
                switches[partition].leader_changed()
        if len(answers) < len(found):
            with suppress(RequestFailed, ClientError):  # the deadline ends it
                await self.source.learn()
        return answers

    async def _decide_all(self, switches: Switches, decided: dict[int, int]) -> None:
        """Side by side, and all to their end: what is decided counts, also where another is not."""

        async def decide(partition: int, switch: PartitionSwitch) -> None:
            decided[partition] = await self._decide(partition, switch)

        ended = await gather_some(
            (decide(*each) for each in sorted(switches.items())), _DECISIONS, return_exceptions=True
        )
        for each in ended:
            if isinstance(each, BaseException):
                raise each

    async def _decide(self, partition: int, switch: PartitionSwitch) -> int:
        boundary = switch.boundary
        is_done = await self.destination.decide(partition, boundary, switch.taken_over, self.is_allowed)
        self.on_decision()
        if not is_done:
            found = await self.destination.boundary(partition)
            if found is None:
                raise SwitchFailed(
                    f"partition {partition} has changed at Dray while it was fenced at the source: another "
                    "migrator is at work; try again"
                )
            return found
        return boundary


def _is_passing(failure: Failure) -> bool:
    return isinstance(failure, ClientError) or failure.code in PASSING


def _steps_of(switches: Switches) -> list[Next]:
    return [switch.next for switch in switches.values()]


def _all_can(switches: Switches) -> bool:
    return all(switch.next is Next.DECIDE for switch in switches.values())


# --- the topic at Dray while it moves, as its switch asks about it


class Destination:
    """Its streams by partition. `hurry` is called when a switch waits for the mirror."""

    def __init__(
        self, mirror: StreamMirror, streams: Mapping[int, int], hurry: Callable[[], None] = lambda: None
    ) -> None:
        self._mirror = mirror
        self._streams = streams
        self._hurry = hurry

    async def end(self, partition: int) -> int:
        """How far it is mirrored."""
        self._hurry()
        return (await self._place(partition)).end

    async def last_epoch(self, partition: int) -> int | None:
        """That of the last mirrored batch, as the source had given it. None where nothing is mirrored."""
        return (await self._place(partition)).epoch

    async def _place(self, partition: int) -> MirroredPlace:
        return await self._mirror.place(self._streams[partition])

    async def producers(self, partition: int) -> Collection[SourceProducer]:
        """Those of the batches in the log, up to its end."""
        found = await self._mirror.producers(self._streams[partition])
        return [SourceProducer(*each) for each in found]

    async def boundary(self, partition: int) -> int | None:
        """None while the source owns the partition."""
        return await self._mirror.boundary(self._streams[partition])

    async def decide(
        self,
        partition: int,
        boundary: int,
        taken_over: Collection[SourceProducer] = (),
        is_allowed: Callable[[], Awaitable[bool]] | None = None,
    ) -> bool:
        """One compare-and-set. False where the log has grown in between, or where it is not allowed any more.
        `taken_over`: producers that are known as the source knows them from then on."""
        producers = [MirroredProducer(*each) for each in taken_over]
        return await self._mirror.decide(self._streams[partition], boundary, is_allowed, producers)


async def boundaries_of(streams: StreamStore, record: MigrationRecord) -> dict[int, int]:
    """B0 of the partitions that are Dray's."""
    found: dict[int, int] = {}
    for partition, stream in enumerate(record.streams):
        await streams.barrier(stream)
        high_watermark = await streams.high_watermark(stream)
        origin = None if high_watermark is None else high_watermark.value.origin
        if origin is not None and not origin.is_classic:
            found[partition] = origin.boundary
    return found
