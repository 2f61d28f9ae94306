"""Which brokers one client is shown for what: by its zone, and by the affinity of brokers to domains.

All of it is advice that keeps clients in their zone and the writers of a domain few: any broker can serve
anything. Only `routing.enforce_owner` makes a broker insist on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dray.api.shared.context import Context
from dray.cluster import (
    ALL_ZONES,
    Broker,
    Owners,
    brokers_in,
    by_affinity,
    owner_of,
    owners,
    way_out,
    zone_of_client,
    zone_of_rack,
)
from dray.topics import Topic


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
        zone = zone_of_client(context.header.client_id)
        near = brokers_in(zone, self._eligible)
        # Where all brokers are in one zone, its name says nothing: clients see the same without it.
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
        """How many replicas a topic shows: those that were asked for, as far as there are brokers. Where
        nothing was asked one of each zone, so that every consumer finds one in its rack."""
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
