"""What is produced to and fetched from each topic, for a bounded number of topics.

A topic has series of its own from its first request on, as long as there is room; the rest is counted
together, under a name that no topic can have. A topic without traffic gives its place up to one that has
some: what it had counted goes to the rest, so that the sum over all series never falls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry

from dray.telemetry.instruments import Counter, Family, Instruments

OTHER: Final = "(other)"
"""Parentheses are in no topic's name."""

_LOOK_SECONDS: Final = 60.0
"""How often idle topics are looked for, at most; a place is given up after one to two of these."""


class TopicCounters:
    """The numbers of one topic, for a hot path: plain attributes."""

    __slots__ = (
        "fetch_bytes",
        "fetch_requests",
        "produce_bytes",
        "produce_records",
        "produce_requests",
        "seen",
    )

    def __init__(self) -> None:
        self.produce_bytes = 0
        self.produce_records = 0
        self.produce_requests = 0
        self.fetch_bytes = 0
        self.fetch_requests = 0
        self.seen = -1
        """The requests at the last look for idle topics."""

    @property
    def requests(self) -> int:
        return self.produce_requests + self.fetch_requests


_SHOWN: Final = (
    ("produce_bytes", "Bytes of record batches taken in, by topic"),
    ("produce_records", "Records taken in, by topic"),
    ("produce_requests", "Produce requests with batches that were taken in, by topic"),
    ("fetch_bytes", "Bytes of record batches sent to consumers, by topic"),
    ("fetch_requests", "Fetch requests, by topic"),
)
"""Records of fetches are not counted: their batches are sent unopened."""


class _Followed(Counter):
    """A counter that is read from the numbers of a topic."""

    __slots__ = ("_name", "_source")

    def __init__(self, source: TopicCounters, name: str) -> None:
        super().__init__()
        self._source = source
        self._name = name

    def add_to(self, family: Any, labels: Sequence[str]) -> None:
        family.add_metric(labels, getattr(self._source, self._name))


class TopicTraffic:
    """`find` is for the event loop's thread alone."""

    def __init__(self, make: Instruments, limit: int, monotonic: Callable[[], float]) -> None:
        self._limit = limit
        self._monotonic = monotonic
        self._looked = monotonic()
        self._families: dict[str, Family[Counter]] = {
            name: make.counters(f"dray_topic_{name}", text, "topic") for name, text in _SHOWN
        }
        self._others = make.counter(
            "dray_topic_requests_of_others",
            "Requests counted under no topic's own name, since metrics.topics have one already",
        )
        self._topics: dict[str, TopicCounters] = {}
        self.other = TopicCounters()
        self._show(OTHER, self.other)

    def __len__(self) -> int:
        return len(self._topics)

    def find(self, topic: str) -> TopicCounters:
        found = self._topics.get(topic)
        return self._admit(topic) if found is None else found

    def _admit(self, topic: str) -> TopicCounters:
        if len(self._topics) >= self._limit:
            self._make_room()
        if len(self._topics) >= self._limit:
            self._others.value += 1
            return self.other
        counters = self._topics[topic] = TopicCounters()
        self._show(topic, counters)
        return counters

    def _make_room(self) -> None:
        now = self._monotonic()
        if now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        for topic, counters in list(self._topics.items()):
            if counters.requests == counters.seen:
                self._drop(topic, counters)
            else:
                counters.seen = counters.requests

    def _drop(self, topic: str, counters: TopicCounters) -> None:
        del self._topics[topic]
        for name, family in self._families.items():
            setattr(self.other, name, getattr(self.other, name) + getattr(counters, name))
            family.drop(topic)

    def _show(self, topic: str, counters: TopicCounters) -> None:
        for name, family in self._families.items():
            family.put(_Followed(counters, name), topic)


def uncounted_traffic() -> TopicTraffic:
    """For a process that shows no metrics: everything is one topic's."""
    return TopicTraffic(Instruments(CollectorRegistry()), 0, lambda: 0.0)
