"""Topics and partitions as several APIs need them: the stream of each, the brokers that are shown for it, and
the right to create one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar
from uuid import UUID

from dray.broker.api.shared.checks import CREATE_IN_CLUSTER, CREATE_TOPIC
from dray.broker.api.shared.context import Context
from dray.broker.cluster import (
    ALL_ZONES,
    Broker,
    Owners,
    brokers_in,
    by_affinity,
    owner_of,
    owners,
    way_out,
    zone_of_rack,
)
from dray.broker.topics import Topic, TopicsUnavailable
from dray.kafka.protocol import ErrorCode
from dray.kafka.records import LEADER_EPOCH

T = TypeVar("T")


def broker_ids(context: Context) -> set[int]:
    """The brokers that are there, as far as this one knows."""
    return {broker.broker_id for broker in context.services.membership.brokers()}


async def find_topic(
    context: Context, name: str, partition: int, topic_id: UUID | None = None
) -> Topic | None:
    """A topic by its id, if one is given, else by its name. Read again where it is not known or does not have
    the partition: either may be new. Raises `TopicsUnavailable`."""
    topics = context.services.topics
    if topic_id is None:
        topic = topics.cached(name)
        if topic is None or partition >= len(topic.streams):
            topic = await topics.refresh(name)
        if topic is None or partition >= len(topic.streams):
            topic = await topics.refresh(name, barrier=True)  # the first read may have been stale
        return topic
    topic = await topics.get_by_id(topic_id)
    if topic is not None and partition >= len(topic.streams):
        topic = await topics.refresh(topic.name)
    return topic if topic is not None and topic.topic_id == topic_id else None


async def find_stream(context: Context, name: str, partition: int) -> int | ErrorCode:
    """The stream of a partition addressed by its topic's name, or why there is none."""
    try:
        topic = await find_topic(context, name, partition)
    except TopicsUnavailable:
        return ErrorCode.LEADER_NOT_AVAILABLE
    stream = None if topic is None else topic.stream_of(partition)
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if stream is None else stream


async def find_leading(context: Context, name: str, partition: int) -> tuple[int, int] | ErrorCode:
    """The stream of a partition and the leader epoch of its topic, or why there is none."""
    stream = await find_stream(context, name, partition)
    if isinstance(stream, ErrorCode):
        return stream
    topic = context.services.topics.cached(name)
    return stream, LEADER_EPOCH if topic is None else topic.leader_epoch


def repeated(items: Iterable[T]) -> dict[T, int]:
    """The things that a request names more than once, and how often, in the request's order."""
    return {item: count for item, count in Counter(items).items() if count > 1}


async def forget_closed(context: Context, name: str) -> None:
    """A stream of this topic is closed, so what is known of the topic is old: read it again."""
    try:
        await context.services.topics.refresh(name)
    except TopicsUnavailable as error:
        context.logger().warning("a deleted topic could not be read again", error=str(error))


# --- create


def may_create(context: Context, name: str) -> bool:
    """Asks for the topic first: then its name is in the audit log as that of the resource."""
    return (
        context.sees(CREATE_TOPIC, name)
        or context.sees(CREATE_IN_CLUSTER, about=f"topic {name}")
        or context.may(CREATE_TOPIC, name)  # which it may not: this notes it
    )


# --- route
#
# The brokers that one client is shown for what: by its zone, and by the affinity of brokers to domains. It is
# all advice that keeps clients in their zone and the writers of a domain few: any broker can serve
# anything. Only `routing.enforce_owner` makes a broker insist on it.


class Routes:
    """The routes at this moment: the next answer is made from the membership of its time."""

    def __init__(self, context: Context) -> None:
        membership = context.services.membership
        self._me = membership.me
        self._known: Sequence[Broker] = membership.brokers()
        self._eligible = self._known  # to lead, or to be read from
        if not membership.is_registered and len(self._known) > 1:
            # This broker is cut off from the metadata store. The others no longer count it as alive, so it
            # does not count itself either.
            self._eligible = [broker for broker in self._known if broker.broker_id != self._me.broker_id]
        self._cluster = context.services.cluster
        zone = context.zone
        near = brokers_in(zone, self._eligible)
        # If all brokers are in one zone, its name says nothing: clients see the same without it.
        is_apart = 0 < len(near) < len(self._eligible)
        self._zone = zone if is_apart and zone is not None else ALL_ZONES
        if is_apart and context.services.settings.strict_zones:
            self._eligible = near
        self._leading: Sequence[Broker] = near or self._eligible
        self._owners = self._owners_in(self._zone, self._leading)
        self._zone_of = {broker.broker_id: broker.zone for broker in self._eligible}
        self._owners_by_zone: Sequence[tuple[str | None, Owners]] | None = None

    def brokers(self) -> Sequence[Broker]:
        """The brokers that the client is shown: those of its zone, which lead everything, and one of each
        other zone, which leads nothing. Clients forget brokers that they are not shown, and many never go
        back to their bootstrap servers. If all brokers they know were dead, they could ask no other. With
        `routing.strict_zones`, only the brokers of its zone are shown."""
        if self._zone == ALL_ZONES:
            return self._known
        shown = {broker.broker_id for broker in brokers_in(self._zone, self._known)}
        for zone in {broker.zone for broker in self._eligible} - {self._zone}:
            there = tuple(broker.broker_id for broker in self._eligible if broker.zone == zone)
            shown.add(way_out(self._zone, there))
        return [broker for broker in self._known if broker.broker_id in shown]

    def _owners_in(self, zone: str, brokers: Sequence[Broker]) -> Owners:
        return owners(zone, tuple(broker.broker_id for broker in brokers), self._cluster.domains)

    @property
    def controller(self) -> int:
        """This broker, or else one of the client's zone. It must be one that the client is shown: to a
        client, any other is no controller at all."""
        near = [broker.broker_id for broker in self._leading]
        return self._me.broker_id if self._me.broker_id in near else near[0]

    def leader(self, stream: int) -> int:
        return owner_of(self._owners, stream)

    # --- replicas: the brokers a stream is best read from

    def replication_factor(self, asked: int | None) -> int:
        """How many replicas a topic shows: those that were asked for, as far as there are brokers. If no
        number was asked for: one of each zone, so that every consumer finds one in its rack."""
        if asked is None:
            return len({broker.zone for broker in self._eligible})
        return min(asked, len(self._eligible))

    def replicas(self, topic: Topic) -> Callable[[int], list[int]]:
        """The replicas of each of the topic's streams: the leader, one broker of each other zone, and others,
        as many as the topic shows. All clients see equally many; clients of a zone see their own leader
        first."""
        count = self.replication_factor(topic.replication_factor)
        if count == 1:
            return lambda stream: [self.leader(stream)]
        return lambda stream: self._replicas(stream, count)

    def _replicas(self, stream: int, count: int) -> list[int]:
        leader = self.leader(stream)
        home = self._zone_of[leader]
        nodes = [leader, *(owner_of(owned, stream) for zone, owned in self._by_zone() if zone != home)]
        if len(nodes) < count:
            ids = tuple(self._zone_of)
            nodes += [
                broker_id
                for broker_id in by_affinity(ids, self._cluster.domain_of(stream))
                if broker_id not in nodes
            ]
        return nodes[:count]

    def _by_zone(self) -> Sequence[tuple[str | None, Owners]]:
        if self._owners_by_zone is None:
            zones = sorted({broker.zone for broker in self._eligible}, key=lambda zone: zone or "")
            self._owners_by_zone = [
                (zone, self._owners_in(zone or ALL_ZONES, [b for b in self._eligible if b.zone == zone]))
                for zone in zones
            ]
        return self._owners_by_zone

    # --- a consumer's rack

    def nearest(self, rack: str) -> Callable[[Topic, int], int | None] | None:
        """Which broker a consumer in that rack should read a stream of a topic from. None if that is this
        one, its zone says otherwise, or no replica of the stream is there: clients go to no other broker than
        to one that they are shown as a replica."""
        zone = zone_of_rack(rack, self._eligible)
        if zone is None or self._zone != ALL_ZONES or self._me.zone == zone:
            return None

        def find(topic: Topic, stream: int) -> int | None:
            shown = self.replicas(topic)(stream)
            return next((node for node in shown if self._zone_of[node] == zone), None)

        return find

    def is_owner(self, stream: int, rack: str = "") -> bool:
        """Whether this client should ask this broker about the stream. A consumer may also go by its rack."""
        if self.leader(stream) == self._me.broker_id:
            return True
        zone = zone_of_rack(rack, self._eligible)
        if zone is None or self._zone != ALL_ZONES:
            return False
        there = self._owners_in(zone, brokers_in(zone, self._eligible))
        return owner_of(there, stream) == self._me.broker_id
