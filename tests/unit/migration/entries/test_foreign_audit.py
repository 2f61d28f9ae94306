"""How many segments of attached topics are gone, as the last look at each stream found it."""

from __future__ import annotations

from uuid import UUID

from dray.broker.topics.live import LiveTopics
from dray.broker.topics.model import FIRST_LEADER_EPOCH, Topic, TopicSettings
from dray.log.types import LogUnavailable
from dray.metadata.contract import Unavailable
from dray.migration.entries.ownership import FIRST_LOOK_SECONDS, ForeignAuditLoop, ForeignFinding
from dray_simulation.kernel.loop import run
from dray_simulation.kernel.runtime import SimulatedRuntime


def topic(name: str, *streams: int, epoch: int = 65_536) -> Topic:
    return Topic(name, UUID(int=streams[0]), streams, {}, 0, TopicSettings.of({}, {}), leader_epoch=epoch)


class Source:
    def __init__(self, *topics: Topic) -> None:
        self.topics = list(topics)
        self.away = False

    async def live(self) -> LiveTopics:
        if self.away:
            raise Unavailable("it does not answer")
        return LiveTopics(list(self.topics))


async def test_what_is_gone_is_known_until_a_look_finds_it_again() -> None:
    gone: dict[int, list[str]] = {1: ["a", "b"], 2: [], 3: ["c"]}
    silent: set[int] = set()

    async def audit(stream: int) -> ForeignFinding:
        assert stream != 9, "it was born here"
        if stream in silent:
            raise LogUnavailable("the store does not answer")
        return ForeignFinding(missing=gone[stream])

    source = Source(topic("orders", 1, 2), topic("old", 3), topic("new", 9, epoch=FIRST_LEADER_EPOCH))
    loop = ForeignAuditLoop(audit, source, SimulatedRuntime(1), 60.0)
    assert loop.missing == 0
    assert await loop.once() == {"orders": 2, "old": 1}
    assert loop.missing == 3
    gone[1] = []
    silent.add(1)
    await loop.once()
    assert loop.missing == 3, "a look that was interrupted says nothing"
    source.away = True
    await loop.once()
    assert loop.missing == 3
    source.away = False
    silent.clear()
    await loop.once()
    assert loop.missing == 1
    source.topics = source.topics[:1]
    await loop.once()
    assert loop.missing == 0, "its topic was deleted"


def test_the_first_look_is_soon_after_the_start() -> None:
    """A broker that is restarted every day would never look otherwise."""

    async def play() -> list[float]:
        runtime = SimulatedRuntime(1)
        looks: list[float] = []
        began = runtime.monotonic()

        async def audit(_: int) -> ForeignFinding:
            looks.append(runtime.monotonic() - began)
            return ForeignFinding()

        loop = ForeignAuditLoop(audit, Source(topic("orders", 1)), runtime, 86_400.0)
        loop.start()
        await runtime.sleep(3 * 86_400.0)
        await loop.stop()
        return looks

    looks = run(play())
    assert looks[0] <= 1.25 * FIRST_LOOK_SECONDS
    assert 2 <= len(looks) <= 5, "and about once a day from then on"
