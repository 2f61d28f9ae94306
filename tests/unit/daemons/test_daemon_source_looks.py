"""Commands that look at a source of which a broker has just died."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any, cast

import pytest
from tests.unit.daemons.simulated_source import RECORD, SimulatedCluster

from dray.daemons.migrator.links import SwitchPreview, preview_switch
from dray.daemons.migrator.source_looks import PATIENCE_SECONDS, SourcePatience, known_ends
from dray.kafka.client.cluster import Cluster
from dray.kafka.client.errors import AuthenticationFailed, ClientError, RequestFailed
from dray.kafka.protocol import ErrorCode
from dray.migration.live.link import plan_link
from dray.migration.live.moving_topic import EndsLook, MovingTopic, UsersLook
from dray.migration.live.switch import expected_pause
from dray.migration.source.fences import NoAuthorizer
from dray.migration.source.source import Failure, SourceEnd, SourceTopic, no_leader
from dray_simulation.kernel.loop import run
from dray_simulation.kernel.runtime import SimulatedRuntime

ELECTED_SECONDS = 9.0

Failures = Callable[[float], Exception | None]


async def no_broker(*_: object) -> Any:
    raise ClientError("h:1: refused")


class SimulatedLive:
    """A topic at its source, as `preview_switch` asks for it. It fails as `failure` says of the time."""

    def __init__(self, runtime: SimulatedRuntime, failure: Failures) -> None:
        self.control = Cluster([("h", 1)], no_broker, runtime)
        self.source = self
        self.checks = 0
        self._runtime = runtime
        self._failure = failure

    async def _ask(self) -> None:
        failure = self._failure(self._runtime.monotonic())
        if failure is not None:
            raise failure

    async def learn(self) -> None:
        return None

    async def look(self) -> EndsLook:
        await self._ask()
        return EndsLook({0: 7}, 0.04, 0.01)

    async def open_transactions(self) -> list[str]:
        await self._ask()
        return ["payments"]

    async def users(self) -> UsersLook:
        await self._ask()
        return UsersLook(["ledger"], ["flink"])

    async def before_fence(self, kind: str) -> dict[str, str]:
        return {"kind": kind}

    moment_seconds = 0.1

    def fence(self, kind: str, undo: dict[str, str]) -> SimulatedLive:
        assert undo == {"kind": kind}
        self.kind = kind
        return self

    has_authorizer = True
    kind = ""

    async def check(self, _: object) -> None:
        self.checks += 1
        if self.kind == "acl" and not self.has_authorizer:
            raise NoAuthorizer("the source has no authorizer")


def ask(failure: Failures) -> tuple[SwitchPreview | Exception, list[str], float, int]:
    """What came of it, the lines that were said, the time it took, and how often the fence was checked."""

    async def work() -> tuple[SwitchPreview | Exception, list[str], float, int]:
        runtime = SimulatedRuntime(1)
        began = runtime.monotonic()
        live = SimulatedLive(runtime, lambda now: failure(now - began))
        lines: list[str] = []
        patience = SourcePatience("orders", runtime, lines.append)
        found: SwitchPreview | Exception
        try:
            found = await preview_switch(cast(MovingTopic, live), RECORD, "acl", patience)
        except (ClientError, RequestFailed) as error:
            found = error
        return found, lines, runtime.monotonic() - began, live.checks

    return run(work())


@pytest.mark.parametrize(
    "failure",
    [
        RequestFailed("orders-0 has no leader at the source", ErrorCode.LEADER_NOT_AVAILABLE),
        ClientError("127.0.0.1:9093: connection refused"),
    ],
    ids=["no leader", "dead broker in the metadata"],
)
def test_a_switch_waits_for_a_new_leader_and_says_so(failure: Exception) -> None:
    found, lines, seconds, checks = ask(lambda now: failure if now < ELECTED_SECONDS else None)
    assert found == SwitchPreview(
        RECORD, {0: 7}, ["payments"], UsersLook(["ledger"], ["flink"]), expected_pause(0.04, 0.01, 2, 0.1)
    )
    assert ELECTED_SECONDS <= seconds < ELECTED_SECONDS + 1
    said = f"waiting for a new leader of orders at the source, {PATIENCE_SECONDS:.0f} s at most: {failure}"
    assert lines == [said, said]  # at once, and after five seconds again
    assert checks == 1  # it writes to the source: not at every try


def test_the_patience_ends_and_the_last_failure_is_raised() -> None:
    failure = RequestFailed("orders-0 has no leader at the source", ErrorCode.LEADER_NOT_AVAILABLE)
    found, lines, seconds, checks = ask(lambda _: failure)
    assert found is failure
    assert PATIENCE_SECONDS <= seconds < PATIENCE_SECONDS + 1
    assert len(lines) == 6
    assert checks == 0


def test_a_coordinator_that_is_still_loading_is_waited_for() -> None:
    failure = RequestFailed("cannot list", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    found, lines, _, _ = ask(lambda now: failure if now < 1 else None)
    assert isinstance(found, SwitchPreview)
    assert lines == [f"waiting for the source, {PATIENCE_SECONDS:.0f} s at most: cannot list"]


@pytest.mark.parametrize(
    "failure",
    [
        RequestFailed("cannot look", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        RequestFailed("another topic", ErrorCode.INVALID_PARTITIONS),
        AuthenticationFailed("wrong password"),
    ],
)
def test_what_does_not_pass_is_said_at_once(failure: Exception) -> None:
    found, lines, seconds, _ = ask(lambda _: failure)
    assert found is failure
    assert (lines, seconds) == ([], 0.0)


# --- looks that do not wait


class MeasuredTopic(SourceTopic):
    """Broker 2 is dead."""

    async def measure(self, partitions: Collection[int]) -> dict[int, SourceEnd | Failure]:
        found: dict[int, SourceEnd | Failure] = {}
        for partition in partitions:
            leadership = self.leaderships.get(partition)
            if leadership is None:
                found[partition] = no_leader(self.topic, partition)
            elif leadership.leader == 2:
                found[partition] = ClientError("h:2: refused")
            else:
                found[partition] = SourceEnd(leadership, 0, 10 + partition, 20, 20)
        return found


@pytest.mark.parametrize(
    ("leaders", "ends", "trouble"),
    [
        ((1, 3), {0: 10, 1: 11}, ""),
        ((1, 2, 2, 3), {0: 10, 3: 13}, "h:2: refused"),
        ((1, -1, 3), {0: 10, 2: 12}, "orders-1 has no leader at the source"),
    ],
    ids=["all", "dead", "none"],
)
async def test_a_status_shows_what_the_other_leaders_say(
    leaders: tuple[int, ...], ends: dict[int, int], trouble: str
) -> None:
    topic = MeasuredTopic(cast(Cluster, SimulatedCluster(leaders=leaders)), "orders")
    assert await known_ends(topic) == (ends, trouble)


async def test_a_link_of_a_topic_without_a_leader_is_worth_another_try() -> None:
    """`SourcePatience` asks again after this error, and not after one that says the topic is unsuitable."""
    look: Awaitable[object] = plan_link(cast(Cluster, SimulatedCluster(leaders=(-1, -1))), "orders")
    with pytest.raises(RequestFailed, match="orders-0 has no leader") as failed:
        await look
    assert failed.value.code == ErrorCode.LEADER_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("asked", "has_authorizer", "taken"),
    [(None, True, "acl"), (None, False, "size"), ("size", True, "size"), ("acl", False, None)],
)
def test_the_fence_is_chosen_by_what_the_source_has(
    asked: str | None, has_authorizer: bool, taken: str | None
) -> None:
    async def work() -> SwitchPreview:
        runtime = SimulatedRuntime(1)
        live = SimulatedLive(runtime, lambda _: None)
        live.has_authorizer = has_authorizer
        patience = SourcePatience("orders", runtime, lambda _: None)
        return await preview_switch(cast(MovingTopic, live), RECORD, asked, patience)

    if taken is None:
        with pytest.raises(NoAuthorizer):
            run(work())
    else:
        assert run(work()).fence == taken
