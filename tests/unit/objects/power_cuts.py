"""Running object operations on a simulated disk until its power is cut."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar
from uuid import UUID

from tests.unit.objects.simulated_disk import PowerCut, SimulatedDisk

from dray.base.runtime import BackgroundTasks
from dray.objects import LocalStore, ObjectExists
from dray.objects.contract import Buffer

T = TypeVar("T")
ROOT = "/data/objects"

DIRECT_FROM = 10
"""Half of what is written goes past the page cache."""


class Turns:
    """Threads that take turns at the disk, one call each, in an order that the seed decides.

    The next turn is given out only when every thread stands at the disk or is done, so a seed always
    gives the same run. After `steps` turns the power is cut."""

    def __init__(self, random: Random, steps: int) -> None:
        self._random = random
        self.steps_left = steps
        self._condition = threading.Condition()
        self._own = threading.local()
        self._moving = 0
        self._waiting: set[int] = set()
        self._turn: int | None = None

    def together(self, threads: int) -> None:
        self._moving = threads

    def take_part(self, number: int, function: Callable[..., T], arguments: Sequence[Any]) -> T:
        self._own.number = number
        try:
            return function(*arguments)
        finally:
            with self._condition:
                self._moving -= 1
                self._give_out()

    def step(self, _: str) -> None:
        number = self._own.number
        with self._condition:
            self._waiting.add(number)
            self._moving -= 1
            self._give_out()
            self._condition.wait_for(lambda: self._turn == number)
            self._turn = None
            self._waiting.discard(number)
            self._moving += 1
            if self.steps_left <= 0:
                raise PowerCut
            self.steps_left -= 1

    def _give_out(self) -> None:
        if self._moving == 0 and self._waiting:
            self._turn = self._random.choice(sorted(self._waiting))
            self._condition.notify_all()


class SteppedRuntime:
    """Hops to a thread are threads of `Turns`, or plain calls where there are none."""

    def __init__(self, random: Random, turns: Turns | None = None) -> None:
        self.random = random
        self.turns = turns
        self._hops = 0
        self.background = BackgroundTasks(self.monotonic)

    def wall_ms(self) -> int:
        return 1_000_000

    def monotonic(self) -> float:
        return 0.0

    def uuid(self) -> UUID:
        return UUID(int=self.random.getrandbits(128))

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("the local engine does not wait")

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        return asyncio.get_running_loop().create_task(coroutine)

    async def in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        if self.turns is None:
            return function(*arguments)
        self._hops += 1
        return await asyncio.to_thread(self.turns.take_part, self._hops, function, arguments)


@dataclass(frozen=True)
class Operation:
    kind: str
    path: str
    content: bytes = b""


@dataclass
class Expected:
    """What each path may hold: bytes, or None for nothing."""

    allowed: dict[str, set[bytes | None]] = field(default_factory=dict)

    def of(self, path: str) -> set[bytes | None]:
        return self.allowed.setdefault(path, {None})

    def learn(self, operation: Operation, outcome: BaseException | None) -> None:
        after = None if operation.kind == "delete" else operation.content
        if outcome is None:
            self.allowed[operation.path] = {after}
        elif isinstance(outcome, ObjectExists):
            self.of(operation.path).discard(None)
        elif isinstance(outcome, PowerCut):
            if operation.kind != "put_if_absent" or None in self.of(operation.path):
                self.of(operation.path).add(after)
        else:
            raise outcome


def perform(store: LocalStore, operation: Operation) -> Coroutine[Any, Any, None]:
    content = operation.content
    parts: list[Buffer] = [content[:3], memoryview(content)[3:7], bytearray(content[7:])]
    match operation.kind:
        case "put":
            return store.put(operation.path, parts)
        case "put_if_absent":
            return store.put_if_absent(operation.path, parts)
        case "delete":
            return store.delete(operation.path)
    raise AssertionError(operation.kind)


async def live(
    disk: SimulatedDisk,
    rounds: Sequence[Sequence[Operation]],
    steps: int,
    seed: int,
    expected: Expected | None = None,
    second_names: str = "",
) -> Expected:
    """Open a store and run the rounds, each one's operations at once, until `steps` calls were made."""
    expected = expected or Expected()
    turns = Turns(Random(seed), steps)
    disk.before_step = turns.step
    runtime = SteppedRuntime(Random(seed), turns)
    try:
        turns.together(1)
        store = await LocalStore.open(ROOT, runtime, disk, direct_from=DIRECT_FROM, second_names=second_names)
        for operations in rounds:
            turns.together(len(operations))
            outcomes = await asyncio.gather(
                *(perform(store, operation) for operation in operations), return_exceptions=True
            )
            for operation, outcome in zip(operations, outcomes, strict=True):
                expected.learn(operation, outcome)
            if any(isinstance(outcome, PowerCut) for outcome in outcomes):
                break
    except PowerCut:
        pass
    disk.before_step = lambda step: None
    return expected


async def contents(disk: SimulatedDisk, seed: int, second_names: str = "") -> dict[str, bytes]:
    """Every object that a store opened on the disk lists and reads."""
    store = await LocalStore.open(
        ROOT, SteppedRuntime(Random(seed)), disk, direct_from=DIRECT_FROM, second_names=second_names
    )
    found = {info.path: bytes(await store.get(info.path)) async for info in store.list("")}
    await store.close()
    assert disk.open_count == 0
    assert disk.names(f"{ROOT}/.dray-incoming") == []
    return found


async def check_after_cut(
    disk: SimulatedDisk, expected: Expected, seed: int, second_names: str = ""
) -> Expected:
    """Fails if an acknowledged object is not there as it was, or another is there in part. What is
    there now has to stay."""
    found = await contents(disk.after_power_cut(Random(seed)), seed, second_names)
    for path, allowed in expected.allowed.items():
        assert found.get(path) in allowed, (
            f"{path} holds {found.get(path)!r} after the cut, but may hold {allowed}"
        )
    assert found.keys() <= expected.allowed.keys()
    return Expected({path: {found.get(path)} for path in expected.allowed})
