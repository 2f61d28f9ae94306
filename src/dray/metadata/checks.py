"""What every engine checks before a write leaves the caller: a mistake is a `ValueError`, at once, and more
than the engine takes is `WriteTooLarge`."""

from __future__ import annotations

from collections.abc import Sequence

from dray.metadata.contract import DeleteRange, Limits, Operation, Put, Session, WriteTooLarge

KEY_END = "\x7f"
"""Greater than every character of a key: the keys under a prefix end below `prefix + KEY_END`."""

DOMAIN_LIMIT = 1 << 31


def check_domain(domain: int) -> None:
    if not 0 <= domain < DOMAIN_LIMIT:
        raise ValueError(f"no such domain: {domain}")


def check_limit(limit: int | None) -> None:
    if limit is not None and limit < 0:
        raise ValueError(f"a scan cannot be limited to {limit} records")


def check_ttl(ttl: float) -> None:
    if not 0 < ttl < float("inf"):
        raise ValueError(f"a session cannot live for {ttl} seconds")


def check_write(domain: int, operations: Sequence[Operation], limits: Limits) -> Session | None:
    """Hold a write to the contract; the session its puts belong to, if they belong to one."""
    check_domain(domain)
    if len(operations) > limits.operations:
        raise WriteTooLarge(f"{len(operations)} operations in one write, at most {limits.operations} go")
    value_bytes = 0
    session: Session | None = None
    sessions = 0
    for operation in operations:
        if isinstance(operation, Put):
            value_bytes += len(operation.value)
            if operation.session is not None:
                sessions += 1
                if session is not None and operation.session is not session:
                    raise ValueError("one write holds the puts of one session")
                session = operation.session
        elif isinstance(operation, DeleteRange):
            continue
        key = operation.key
        if not (key and key.isascii() and key.isprintable()):
            raise ValueError(f"a key is printable ASCII and not empty: {key!r}")
    if session is not None and sessions != len(operations):
        raise ValueError("puts of a session share a write with nothing else")
    if value_bytes > limits.value_bytes:
        raise WriteTooLarge(f"{value_bytes} bytes of values in one write, at most {limits.value_bytes} go")
    return session
