"""Polls that go by what a watch has told, in the model: one mark answers for all streams of a domain.

Brokers keep what they read of streams. Their watch tells which streams moved, late, and breaks now and then:
what happens until it stands again is never told. Reads without a barrier may be old, but never older than
what this client has seen or was told. The promise: a poll that says where a stream ends says no less than
what was acknowledged before the poll began.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Generator
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

from tests.model.store import Violation

RULES = {
    "no-mark": "a poll says that there is nothing since nothing was told, and asks for no mark",
    "late-mark": "a mark counts from when it came, and not from when it was asked for",
    "mark-ahead": "a store hands out a mark before the changes that it stands behind",
    "told-too-early": "a store tells of a change that a read begun afterwards may not see",
    "no-era": "what was read before the watch broke counts as followed",
    "no-barrier": "what was read without a barrier, before anything was told, counts as followed",
    "read-before": "a read that began before a stream was told to have moved settles that",
    "forgotten": "what was told of a stream is forgotten with it, while a read of it is under way",
    "strangers": "what is told of a stream while it is read for the first time is dropped",
}

Steps: TypeAlias = Generator[None, None, None]
STREAMS = 3
STEPS = 600
NEVER = -1


@dataclass(slots=True)
class Known:
    end: int
    confirmed: int = NEVER  # when it was asked for behind a barrier
    moved: int = 0  # the number of the last hint about it
    read: int = 0  # how many hints there were when its last read began


@dataclass(slots=True)
class Broker:
    seen: int = 0  # reads show the store as of then, or later
    queue: deque[tuple[str, int]] = field(default_factory=deque)
    standing: bool = False
    known: dict[int, Known] = field(default_factory=dict)
    hints: int = 0
    strangers: int = 0  # the number of the last hint about any stream that was not known
    since: int = NEVER
    upto: int = NEVER
    marks: int = 0  # that were asked for
    came: int = 0  # the last one that was handed out


class HearingWorld:
    def __init__(self, seed: int, without: Collection[str] = ()) -> None:
        self.random = Random(seed)
        self.without = without
        self.now = 0
        self.commits: list[tuple[int, int]] = []  # stream and its new end: the store's history
        self.acknowledged = [0] * STREAMS
        self.brokers = [Broker() for _ in range(self.random.choice((1, 2)))]
        self.counts: Counter[str] = Counter()

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def pause(self, longest: int = 4) -> Steps:
        for _ in range(self.random.randrange(longest)):
            yield

    def end(self, stream: int, upto: int) -> int:
        return next((end for each, end in reversed(self.commits[:upto]) if each == stream), 0)

    # --- the store

    def writer(self) -> Steps:
        while True:
            yield from self.pause(20)
            stream = self.random.randrange(STREAMS)
            end = self.end(stream, len(self.commits)) + 1
            self.commits.append((stream, end))
            for broker in self.brokers:
                if broker.standing:
                    broker.queue.append(("moved", stream))
            yield from self.pause()
            self.acknowledged[stream] = max(self.acknowledged[stream], end)

    def breaker(self, broker: Broker) -> Steps:
        while True:
            yield from self.pause(200)
            broker.standing = False
            broker.queue.clear()
            yield from self.pause(10)
            broker.standing = True
            broker.queue.append(("anything", 0))
            self.counts["eras"] += 1

    def read(self, broker: Broker, stream: int, barrier: bool) -> Generator[None, None, int]:
        if barrier:
            yield from self.pause()
            broker.seen = len(self.commits)
        yield from self.pause()
        broker.seen = self.random.randint(broker.seen, len(self.commits))
        end = self.end(stream, broker.seen)
        yield from self.pause()  # until the answer is here
        return end

    def mark(self, broker: Broker) -> Generator[None, None, int]:
        broker.marks += 1
        name = broker.marks
        yield from self.pause()
        place = broker.queue.appendleft if "mark-ahead" in self.without else broker.queue.append
        if broker.standing:
            place(("mark", name))
        return name

    # --- a broker

    def listener(self, broker: Broker) -> Steps:
        """Hands out what the watch has told, an item at a time."""
        while True:
            yield from self.pause(6)
            if not broker.queue:
                continue
            what, number = broker.queue.popleft()
            if what == "anything":
                broker.since, broker.upto = self.now, NEVER
            elif what == "mark":
                broker.came = number
            else:
                self.hear(broker, number)

    def hear(self, broker: Broker, stream: int) -> None:
        if "told-too-early" not in self.without:
            # The store has applied what it tells of: every change up to the first one that is not told yet.
            waiting = sum(what == "moved" for what, _ in broker.queue)
            broker.seen = max(broker.seen, len(self.commits) - waiting)
        broker.hints += 1
        known = broker.known.get(stream)
        if known is not None:
            known.moved = broker.hints
        else:
            broker.strangers = broker.hints

    def refresh(self, broker: Broker, stream: int, barrier: bool) -> Steps:
        asked, told = self.now, broker.hints
        end = yield from self.read(broker, stream, barrier)
        known = broker.known.get(stream)
        if known is None:
            known = broker.known[stream] = Known(end)
            known.moved = 0 if "strangers" in self.without else broker.strangers
        known.end = max(known.end, end)
        known.read = max(known.read, broker.hints if "read-before" in self.without else told)
        if barrier or "no-barrier" in self.without:
            known.confirmed = max(known.confirmed, asked)

    def good_since(self, broker: Broker, stream: int) -> int:
        """The time up to which everything acknowledged is in what is known of a stream."""
        known = broker.known.get(stream)
        if known is None:
            return NEVER
        followed = "no-era" in self.without or (broker.since != NEVER and known.confirmed >= broker.since)
        if followed and known.confirmed != NEVER and known.moved <= known.read:
            return max(known.confirmed, broker.upto)
        return known.confirmed

    def hear_upto(self, broker: Broker, began: int) -> Steps:
        if broker.since == NEVER or broker.upto >= began:
            return
        if "no-mark" in self.without:
            broker.upto = self.now
            return
        asked, era = self.now, broker.since
        name = yield from self.mark(broker)
        for _ in range(100):
            if broker.came >= name or broker.since != era:
                break
            yield
        if broker.came >= name and broker.since == era:
            self.counts["marks"] += 1
            broker.upto = max(broker.upto, self.now if "late-mark" in self.without else asked)

    def refresher(self, broker: Broker) -> Steps:
        """Looks at streams that moved, without a barrier, and forgets some."""
        while True:
            yield from self.pause(12)
            moved = [stream for stream, known in broker.known.items() if known.moved > known.read]
            if moved:
                yield from self.refresh(broker, self.random.choice(moved), False)
            if self.chance(0.2):
                self.forget(broker, self.random.randrange(STREAMS))

    def forget(self, broker: Broker, stream: int) -> None:
        known = broker.known.pop(stream, None)
        if known is not None and "forgotten" not in self.without:
            broker.strangers = max(broker.strangers, known.moved)

    def poller(self, broker: Broker) -> Steps:
        while True:
            yield from self.pause(30)
            began, due = self.now, list(self.acknowledged)
            yield from self.pause(30)  # it waits
            yield from self.hear_upto(broker, began)
            for stream in range(STREAMS):
                if self.good_since(broker, stream) >= began:
                    self.counts["answered unasked"] += 1
                else:
                    yield from self.refresh(broker, stream, True)
                    self.counts["asked"] += 1
                known = broker.known.get(stream)
                if known is not None and known.end < due[stream]:
                    raise Violation("a poll missed what was acknowledged before it began")


def run_hearing(seed: int, without: Collection[str] = (), steps: int = STEPS) -> HearingWorld:
    world = HearingWorld(seed, without)
    actors = [world.writer() for _ in range(2)]
    for broker in world.brokers:
        actors += [world.breaker(broker), world.listener(broker), world.refresher(broker)]
        actors += [world.poller(broker) for _ in range(3)]
    for _ in range(steps * len(actors)):
        world.now += 1
        next(world.random.choice(actors))
    return world
