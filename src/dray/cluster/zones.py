"""Where a client is, and which brokers are near it.

A client says its availability zone in its `client.id`, as a list of pairs: `zone_id=use1-az4,team=billing`.
Kafka's own `client.rack` says the same where the protocol carries it. No client is refused for naming a zone
that has no brokers: such a client sees all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from dray.cluster.broker import Broker

ZONE_PAIR: Final = "zone_id"


@lru_cache(maxsize=4096)
def zone_of_client(client_id: str | None) -> str | None:
    """The zone that a `client.id` names. Parts that are no pairs are left to whoever put them there, spaces
    around names and values do not count, and the first zone that is named holds."""
    if client_id is None or ZONE_PAIR not in client_id:
        return None
    for part in client_id.split(","):
        name, _, value = part.partition("=")
        if name.strip() == ZONE_PAIR:
            return value.strip() or None
    return None


def brokers_in(zone: str | None, brokers: Sequence[Broker]) -> list[Broker]:
    return [broker for broker in brokers if zone is not None and broker.zone == zone]


def zone_of_rack(rack: str, brokers: Sequence[Broker]) -> str | None:
    """The zone that a `client.rack` stands for: the one of that name, else the one in which a broker has that
    rack. None where no broker knows it."""
    if not rack:
        return None
    if any(broker.zone == rack for broker in brokers):
        return rack
    return next((broker.zone for broker in brokers if broker.rack == rack), None)
