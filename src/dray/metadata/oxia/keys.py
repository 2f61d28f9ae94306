"""How the keys of the contract are stored, and how those of a domain are told apart from those of others.

Oxia sorts the keys of a namespace in one of two ways: by their bytes ("natural"), or level by level, as if
they were paths ("hierarchical"). Keys without a slash are sorted by their bytes either way. So none is stored
with one: a slash becomes two dots, and a dot becomes a dot and a dash, which lie in the same order. Nothing
else lies between the two characters, so the stored keys sort as the keys do, and begin with what the keys
begin with.

A domain's partition key decides its shard, but several domains may share a shard, where keys are one space.
So each stored key carries its domain in front: a dot and ten digits. The dot is not for looks: in a namespace
with natural sorting, Oxia (0.17.1) finds the keys of a session only if they start with a character below `/`
when escaped as in a URL.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from xxhash import xxh3_64_intdigest

DOMAIN_DIGITS: Final = 10
PREFIX_LENGTH: Final = DOMAIN_DIGITS + 1

BARRIER_KEY: Final = "dray-barrier"
"""The key that barriers name. It is never written."""


def mark_key(domain: int, name: str) -> str:
    """The key that a mark names. It is never written either."""
    return f"{BARRIER_KEY}-{domain}-{name}"


def split_mark(stored: str) -> tuple[int, str] | None:
    """Domain and name of a mark; None for any other key."""
    if not stored.startswith(f"{BARRIER_KEY}-"):
        return None
    domain, name = stored.removeprefix(f"{BARRIER_KEY}-").split("-", 1)
    return int(domain), name


def encode_key(key: str) -> str:
    return key.replace(".", ".-").replace("/", "..")


def decode_key(encoded: str) -> str:
    return encoded.replace("..", "/").replace(".-", ".")


@lru_cache(4096)
def key_prefix(domain: int) -> str:
    return f".{domain:0{DOMAIN_DIGITS}d}"


def stored_key(domain: int, key: str) -> str:
    return key_prefix(domain) + encode_key(key)


def split_key(stored: str) -> tuple[int, str] | None:
    """Domain and key of a stored key; None for one that belongs to no domain."""
    digits = stored[1:PREFIX_LENGTH]
    if not stored.startswith(".") or len(digits) != DOMAIN_DIGITS or not digits.isdigit():
        return None
    return int(digits), decode_key(stored[PREFIX_LENGTH:])


@lru_cache(4096)
def partition_key(domain: int) -> str:
    return f"dray-{domain}"


@lru_cache(4096)
def partition_hash(domain: int) -> int:
    """Oxia's own routing: the low half of XXH3-64. It is part of the stored format."""
    return xxh3_64_intdigest(partition_key(domain).encode()) & 0xFFFFFFFF
