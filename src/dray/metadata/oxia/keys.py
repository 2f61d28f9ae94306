"""How the keys of a domain are told apart from those of others.

A domain's partition key decides its shard, but several domains may share a shard, where keys are one space.
So each key carries its domain in front: `/` and ten digits. The slash is not for looks: in a namespace with
natural sorting, Oxia (0.17.1) finds the keys of a session only if they start with a character below `/` when
escaped as in a URL, and `%2F` does. What Dray keeps for itself lies elsewhere: the key that barriers name
(never written) and the two keys by which the sorting of the namespace is known.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from xxhash import xxh3_64_intdigest

DOMAIN_DIGITS: Final = 10
PREFIX_LENGTH: Final = DOMAIN_DIGITS + 1

BARRIER_KEY: Final = "dray-barrier"

# Sorted by bytes, the first is next to SORTING_PROBE; sorted by levels ("hierarchical"), the second is.
SORTING_PROBE: Final = "dray-sorting/a"
SORTING_KEYS: Final = ("dray-sorting/a/b", "dray-sorting/c")


@lru_cache(4096)
def key_prefix(domain: int) -> str:
    return f"/{domain:0{DOMAIN_DIGITS}d}"


@lru_cache(4096)
def partition_key(domain: int) -> str:
    return f"dray-{domain}"


@lru_cache(4096)
def partition_hash(domain: int) -> int:
    """Oxia's own routing: the low half of XXH3-64. It is part of the stored format."""
    return xxh3_64_intdigest(partition_key(domain).encode()) & 0xFFFFFFFF


def split_key(stored: str) -> tuple[int, str] | None:
    """Domain and key of a stored key; None for one that belongs to no domain."""
    digits = stored[1:PREFIX_LENGTH]
    if not stored.startswith("/") or len(digits) != DOMAIN_DIGITS or not digits.isdigit():
        return None
    return int(digits), stored[PREFIX_LENGTH:]
