"""One spelling for each address: Java's, since that is what Kafka compares hosts of ACLs by."""

from __future__ import annotations

from ipaddress import IPv6Address


def as_java_writes(text: str) -> str:
    """An IPv6 address in eight numbers, none of them left out, and an IPv4 address in IPv6's clothes as IPv4.
    What is no address stays as it is."""
    if ":" not in text:  # most, and at once
        return text
    try:
        address = IPv6Address(text)
    except ValueError:
        return text
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    numbers = ":".join(f"{address.packed[at] << 8 | address.packed[at + 1]:x}" for at in range(0, 16, 2))
    return numbers if address.scope_id is None else f"{numbers}%{address.scope_id}"
