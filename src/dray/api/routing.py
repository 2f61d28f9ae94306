"""What one client is told about who serves what: by its zone, and by the affinity of brokers to domains.

All of it is advice that keeps clients in their zone and the writers of a domain few: any broker can serve
anything. Only `routing.enforce_owner` makes a broker insist on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dray.api.context import Context
from dray.cluster import (
    ALL_ZONES,
    Broker,
    Owners,
    brokers_in,
    owner_of,
    owners,
    way_out,
    zone_of_client,
    zone_of_rack,
)


class Routes:
    """As of now: a membership that changes changes the next answer."""

    def __init__(self, context: Context) -> None:
        membership = context.services.membership
        self._me = membership.me
        self._known: Sequence[Broker] = membership.brokers()
        self._eligible = self._known  # to lead, or to be read from
        if not membership.is_registered and len(self._known) > 1:
            # Cut off from the metadata store: the others do not count on this broker any more, nor does it.
            self._eligible = [broker for broker in self._known if broker.broker_id != self._me.broker_id]
        self._domains = context.services.cluster.domains
        zone = zone_of_client(context.header.client_id)
        near = brokers_in(zone, self._eligible)
        # Where all brokers are in one zone, its name says nothing: clients see the same without it.
        is_apart = 0 < len(near) < len(self._eligible)
        self._zone = zone if is_apart and zone is not None else ALL_ZONES
        self._leading: Sequence[Broker] = near or self._eligible
        self._owners = self._owners_in(self._zone, self._leading)

    def brokers(self) -> Sequence[Broker]:
        """Whom the client is shown: those of its zone, which lead everything, and one of each other zone,
        which leads nothing. Clients forget whom they are not shown, and many never go back to their bootstrap
        servers: if all they know are dead, they have nobody to ask who lives."""
        if self._zone == ALL_ZONES:
            return self._known
        shown = {broker.broker_id for broker in brokers_in(self._zone, self._known)}
        for zone in {broker.zone for broker in self._eligible} - {self._zone}:
            there = tuple(broker.broker_id for broker in self._eligible if broker.zone == zone)
            shown.add(way_out(self._zone, there))
        return [broker for broker in self._known if broker.broker_id in shown]

    def _owners_in(self, zone: str, brokers: Sequence[Broker]) -> Owners:
        return owners(zone, tuple(broker.broker_id for broker in brokers), self._domains)

    @property
    def controller(self) -> int:
        """This broker, or else one of the client's zone: never one that it is not shown, for clients take
        such a one for none at all."""
        near = [broker.broker_id for broker in self._leading]
        return self._me.broker_id if self._me.broker_id in near else near[0]

    def leader(self, stream: int) -> int:
        return owner_of(self._owners, stream)

    def replicas(self) -> Callable[[int], list[int]]:
        """The brokers a stream is best read from, its leader first. A client of a zone sees its leader alone.
        One that named no zone sees the leaders of all zones, and may be sent to the one in its rack."""
        zones: list[Owners] = []
        if self._zone == ALL_ZONES:
            named = sorted({broker.zone for broker in self._eligible if broker.zone is not None})
            zones = [self._owners_in(zone, brokers_in(zone, self._eligible)) for zone in named]
        return lambda stream: list(
            dict.fromkeys([self.leader(stream), *(owner_of(owned, stream) for owned in zones)])
        )

    # --- a consumer's rack

    def nearest(self, rack: str) -> Callable[[int], int] | None:
        """Which broker a consumer in that rack should read a stream from; None if that is this one, or its
        zone says otherwise. Whoever is named is among the replicas that the client knows, or it would not go
        there."""
        zone = zone_of_rack(rack, self._eligible)
        if zone is None or self._zone != ALL_ZONES or self._me.zone == zone:
            return None
        there = self._owners_in(zone, brokers_in(zone, self._eligible))
        return lambda stream: owner_of(there, stream)

    def is_owner(self, stream: int, rack: str = "") -> bool:
        """Whether this client should ask this broker about the stream. A consumer may also go by its rack."""
        if self.leader(stream) == self._me.broker_id:
            return True
        zone = zone_of_rack(rack, self._eligible)
        if zone is None or self._zone != ALL_ZONES:
            return False
        there = self._owners_in(zone, brokers_in(zone, self._eligible))
        return owner_of(there, stream) == self._me.broker_id
