"""Commands that look at a source of which a broker has just died."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from tests.unit.daemon.simulated_source import RECORD, SimulatedCluster

from dray.client.cluster import Cluster
from dray.client.errors import AuthenticationFailed, ClientError, RequestFailed
from dray.daemon.links import SwitchPreview, preview_switch
from dray.daemon.live_topic import KafkaTopic
from dray.daemon.source_looks import PATIENCE_SECONDS, SourcePatience, known_ends
from dray.protocol import ErrorCode
from dray.simulation.kernel.loop import run
from dray.simulation.kernel.runtime import SimulatedRuntime
from dray.upstream.link_plan import plan_link
from dray.upstream.source import Leadership, SourceEnd, SourceTopic

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

    async def lags(self) -> dict[int, int]:
        await self._ask()
        return {0: 7}

    async def open_transactions(self) -> list[str]:
        await self._ask()
        return ["payments"]

    async def before_fence(self, kind: str) -> dict[str, str]:
        return {"kind": kind}

    def fence(self, kind: str, undo: dict[str, str]) -> SimulatedLive:
        assert undo == {"kind": kind}
        return self

    async def check(self, _: object) -> None:
        self.checks += 1


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
            found = await preview_switch(cast(KafkaTopic, live), RECORD, "acl", patience)
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
    assert found == SwitchPreview(RECORD, {0: 7}, ["payments"])
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

    asked: list[int]

    async def measure(self, partition: int) -> SourceEnd:
        self.asked.append(partition)
        leadership, _ = self._leader(partition)
        if leadership.leader == 2:
            raise ClientError("h:2: refused")
        return SourceEnd(leadership, 0, 10 + partition, 20, 20)

    def _leader(self, partition: int) -> tuple[Leadership, Any]:
        if partition not in self.leaderships:
            return super()._leader(partition)
        return self.leaderships[partition], ("h", 1)


@pytest.mark.parametrize(
    ("leaders", "ends", "trouble", "asked"),
    [
        ((1, 3), {0: 10, 1: 11}, "", [0, 1]),
        ((1, 2, 2, 3), {0: 10, 3: 13}, "h:2: refused", [0, 1, 3]),
        ((1, -1, 3), {0: 10, 2: 12}, "orders-1 has no leader at the source", [0, 1, 2]),
    ],
    ids=["all", "dead", "none"],
)
async def test_a_status_shows_what_the_other_leaders_say(
    leaders: tuple[int, ...], ends: dict[int, int], trouble: str, asked: list[int]
) -> None:
    topic = MeasuredTopic(cast(Cluster, SimulatedCluster(leaders=leaders)), "orders")
    topic.asked = []
    assert await known_ends(topic) == (ends, trouble)
    assert topic.asked == asked


async def test_a_link_of_a_topic_without_a_leader_is_worth_another_try() -> None:
    """`SourcePatience` asks again after this error, and not after one that says the topic is unsuitable."""
    look: Awaitable[object] = plan_link(cast(Cluster, SimulatedCluster(leaders=(-1, -1))), "orders")
    with pytest.raises(RequestFailed, match="orders-0 has no leader") as failed:
        await look
    assert failed.value.code == ErrorCode.LEADER_NOT_AVAILABLE
