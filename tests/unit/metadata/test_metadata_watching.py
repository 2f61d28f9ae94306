"""The hub that hands changes to watchers."""

from __future__ import annotations

import asyncio

from dray.metadata.contract import Change
from dray.metadata.watching import PENDING_KEYS, WatchHub


async def test_a_key_that_changes_often_is_told_once() -> None:
    hub = WatchHub()
    watch = hub.watch(0)
    await anext(watch)
    for _ in range(1000):
        hub.publish(0, ["/a", "/b"])
    hub.publish(0, ["/c"])
    assert [await anext(watch) for _ in range(3)] == [Change("/a"), Change("/b"), Change("/c")]
    hub.publish(0, ["/a"])
    assert await anext(watch) == Change("/a")


async def test_what_a_watcher_has_yet_to_hear_is_bounded() -> None:
    hub = WatchHub()
    watch = hub.watch(0)
    await anext(watch)
    hub.publish(0, [f"/{number}" for number in range(PENDING_KEYS + 1)])
    hub.publish(0, ["/more"])
    assert await anext(watch) == Change(None)
    hub.publish(0, ["/later"])
    assert await anext(watch) == Change("/later")


async def test_an_interruption_reaches_every_watcher() -> None:
    hub = WatchHub()
    watches = [hub.watch(domain) for domain in (0, 0, 1)]
    for watch in watches:
        await anext(watch)
    hub.publish(0, ["/a"])
    hub.interrupt()
    assert [await anext(watch) for watch in watches] == [Change(None)] * 3


async def test_a_watch_that_is_left_is_forgotten() -> None:
    hub = WatchHub()
    watch = hub.watch(0)
    await anext(watch)
    assert hub.watched(0)
    await watch.aclose()
    assert not hub.watched(0)


async def test_watchers_wake_in_the_order_they_came() -> None:
    """A simulation must run the same way each time."""
    hub = WatchHub()
    heard: list[int] = []

    async def listen(number: int) -> None:
        watch = hub.watch(0)
        await anext(watch)
        await anext(watch)
        heard.append(number)

    tasks = [asyncio.ensure_future(listen(number)) for number in range(50)]
    await asyncio.sleep(0)
    hub.publish(0, ["/a"])
    await asyncio.gather(*tasks)
    assert heard == list(range(50))
