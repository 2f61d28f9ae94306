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

from functools import lru_cache
from hashlib import blake2b
from typing import Final

from dray.metadata import keys

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
    """Who owns what, for the clients of a zone. There is at least one broker, each is there once, and their
    order does not matter."""
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
