"""Which broker a client should talk to about a domain's streams.

Any broker can serve any stream: affinity is never correctness, it only keeps the writers of a domain few and
its caches warm. Every broker must give the same answer for the same membership.

The answer is a rendezvous hash with bounded loads: each pair of a domain and a broker has a weight, the pairs
are taken from the greatest weight down, and a broker that has its share takes no more. The shares differ by
one domain at most, so no broker is idle while another owns two. A broker that comes or goes moves the domains
it gains or loses and few others, since the weights of the rest stay as they were.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Final

ALL_ZONES: Final = ""
"""In place of a zone: for clients that named none, or one in which no broker is."""

_NO_DOMAIN: Final = -1


@lru_cache(maxsize=256)
def owners(zone: str, broker_ids: tuple[int, ...], domains: int) -> tuple[int, ...]:
    """The id of each domain's broker, for the clients of a zone. There is at least one broker, each is there
    once, and their order does not matter."""
    if not broker_ids:
        raise ValueError("there is no broker to own anything")
    share, extras = divmod(domains, len(broker_ids))
    owner: dict[int, int] = {}
    loads = dict.fromkeys(broker_ids, 0)
    pairs = [(domain, broker_id) for domain in range(domains) for broker_id in broker_ids]
    pairs.sort(key=lambda pair: (-_weight(zone, *pair), pair))
    for domain, broker_id in pairs:
        load = loads[broker_id]
        if domain in owner or load > share or (load == share and extras == 0):
            continue
        if load == share:
            extras -= 1
        owner[domain] = broker_id
        loads[broker_id] = load + 1
    return tuple(owner[domain] for domain in range(domains))


@lru_cache(maxsize=256)
def way_out(zone: str, broker_ids: tuple[int, ...]) -> int:
    """The broker of another zone that the clients of a zone are shown, for the day when theirs goes dark: not
    the same one for every zone."""
    return max(broker_ids, key=lambda broker_id: (_weight(zone, _NO_DOMAIN, broker_id), broker_id))


def _weight(zone: str, domain: int, broker_id: int) -> int:
    """The same in every process and every version: brokers of a rolling upgrade must agree."""
    digest = blake2b(f"{zone}/{domain}/{broker_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")
