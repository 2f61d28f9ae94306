"""How domains, keys, values and versions are kept in etcd.

A key of a domain is `<prefix><domain, 8 hex digits>/<key>`. A stored value begins with a version byte and the
place, in its write, of the put that stored it: all keys of one etcd transaction share a revision, so
revision and place together are the version of the contract. See `docs/formats-metadata.md`.
"""

from __future__ import annotations

from typing import Final

from dray.metadata.contract import MARK

FORMAT: Final = 1
HEADER_BYTES: Final = 4
PLACE_BITS: Final = 16
MOST_PLACES: Final = 1 << PLACE_BITS


class DamagedValue(ValueError):
    """A key below our prefix that holds something not ours."""


class Keyspace:
    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.encode()

    @property
    def tick(self) -> bytes:
        """A key that is put for nothing but a new revision; no domain's name looks like it."""
        return self._prefix + b"tick"

    def mark(self, domain: int) -> bytes:
        """A key below all keys of the domain, where watches of it see what is put there."""
        return self.domain(domain) + MARK.encode()

    def domain(self, domain: int) -> bytes:
        return self._prefix + b"%08x/" % domain

    def domain_end(self, domain: int) -> bytes:
        """Greater than every key of the domain."""
        return self._prefix + b"%08x0" % domain  # "0" follows "/"

    def key(self, domain: int, key: str) -> bytes:
        return self.domain(domain) + key.encode()

    def bare(self, domain: int, stored: bytes) -> str:
        return stored[len(self.domain(domain)) :].decode()


def stored_value(value: bytes, place: int) -> bytes:
    return b"%c%b\0%b" % (FORMAT, place.to_bytes(2), value)


def place_and_value(stored: bytes) -> tuple[int, bytes]:
    if len(stored) < HEADER_BYTES or stored[0] != FORMAT or stored[3] != 0:
        raise DamagedValue(f"a value of {len(stored)} bytes that Dray did not write, or a newer Dray did")
    return int.from_bytes(stored[1:3]), stored[HEADER_BYTES:]


def value_bounds(place: int) -> tuple[bytes, bytes]:
    """Every value stored at this place, and no other, lies strictly between the two."""
    below = b"%c%b" % (FORMAT, place.to_bytes(2))
    return below, below + b"\1"


def version_of(revision: int, place: int) -> int:
    return revision << PLACE_BITS | place


def revision_and_place(version: int) -> tuple[int, int]:
    return version >> PLACE_BITS, version & (MOST_PLACES - 1)
