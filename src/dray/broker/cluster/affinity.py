"""Which broker a client should talk to about a stream.

Any broker can serve any stream: affinity is never correctness, it only keeps the writers of a domain few and
its caches warm. Every broker must give the same answer for the same membership.

The answer is a rendezvous hash with bounded loads: each pair of a domain and a broker has a weight, the pairs
are taken from the greatest weight down, and a broker that has its share takes no more. A domain counts as so
many pieces, by its streams, and the last one that a broker takes may be more than its share has room for:
then others share it. So brokers lead equally many streams, whatever the number of domains. Every pair that
gets pieces ends a broker's share or a domain: with D domains and B brokers there are at most D + B - 1 of
them. A broker that comes or goes moves what it gains or loses and little else, since the weights of the rest
stay as they were.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Final

from dray.broker.cluster.membership import Broker
from dray.metadata import keys

# --- the zone of a client, and the brokers near it
#
# A client says its availability zone in its `client.id`, as a list of pairs:
# `zone_id=use1-az4,team=billing`. One that cannot is placed by the listener it came through, else by its
# address (`Context.zone`). Kafka's own `client.rack` says the same where the protocol carries it. No
# client is refused for naming a zone that has no brokers: such a client sees all of them.

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


def zone_of_address(address: str, zones: Mapping[str, Collection[IPv4Network | IPv6Network]]) -> str | None:
    """The zone of the smallest range that the address is in."""
    try:
        client = ip_address(address.partition("%")[0])
    except ValueError:
        return None
    client = getattr(client, "ipv4_mapped", None) or client
    found = [(each.prefixlen, zone) for zone, ranges in zones.items() for each in ranges if client in each]
    return max(found)[1] if found else None


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


# --- which of them leads

ALL_ZONES: Final = ""
"""In place of a zone: for clients that named none, or one in which no broker is."""

PIECES: Final = 60
"""Of a domain: many enough to be dealt out evenly."""

_STRIDE: Final = 37
"""From a stream's piece to that of the domain's next one: a topic's streams are to be spread."""

_NO_DOMAIN: Final = -1

Owners = tuple[tuple[int, ...], ...]
"""Per domain the id of its broker, or those of its pieces."""


@lru_cache(maxsize=256)
def owners(zone: str, broker_ids: tuple[int, ...], domains: int) -> Owners:
    """The owner of each domain, or of each of its pieces, for the clients of a zone. There is at least one
    broker, and none is named twice; their order does not matter."""
    if not broker_ids:
        raise ValueError("there is no broker to own anything")
    share, extras = divmod(domains * PIECES, len(broker_ids))
    room: dict[int, int] = {}
    pieces: list[list[int]] = [[] for _ in range(domains)]
    pairs = [(domain, broker_id) for domain in range(domains) for broker_id in broker_ids]
    pairs.sort(key=lambda pair: (-_weight(zone, *pair), pair))
    for domain, broker_id in pairs:
        if broker_id not in room:
            room[broker_id] = share + (len(room) < extras)
        taken = min(room[broker_id], PIECES - len(pieces[domain]))
        pieces[domain] += [broker_id] * taken
        room[broker_id] -= taken
    return tuple((owned[0],) if owned[0] == owned[-1] else tuple(owned) for owned in pieces)


def owner_of(owned: Owners, stream: int) -> int:
    domains = len(owned)
    pieces = owned[keys.domain_of_stream(stream, domains)]
    return pieces[stream // domains * _STRIDE % len(pieces)]


@lru_cache(maxsize=4096)
def by_affinity(broker_ids: tuple[int, ...], domain: int) -> tuple[int, ...]:
    """All of them, those that a domain is nearest to first."""
    return tuple(
        sorted(broker_ids, key=lambda broker_id: (-_weight(ALL_ZONES, domain, broker_id), broker_id))
    )


@lru_cache(maxsize=256)
def way_out(zone: str, broker_ids: tuple[int, ...]) -> int:
    """The broker of another zone that the clients of a zone are shown, for the day when theirs goes dark: not
    the same one for every zone."""
    return max(broker_ids, key=lambda broker_id: (_weight(zone, _NO_DOMAIN, broker_id), broker_id))


def _weight(zone: str, domain: int, broker_id: int) -> int:
    """The same in every process and every version: brokers of a rolling upgrade must agree."""
    digest = blake2b(f"{zone}/{domain}/{broker_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")
