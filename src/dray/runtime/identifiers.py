"""Random ids, from randomness of the operating system that is fetched for many at once.

Fetching it lets go of Python's lock. A thread that waits for it then runs, and the caller waits for its turn:
that took a seventh of the time of a small append. A child process that was forked must never give out the ids
that its parent will give out.
"""

from __future__ import annotations

import os
from typing import Final
from uuid import UUID

_ID_BYTES: Final = 16
_AT_ONCE: Final = 256

_pool: list[bytes] = []


def random_uuid() -> UUID:
    """Version 4. Any thread may call it: what two threads do to the pool at once is atomic."""
    try:
        found = _pool.pop()
    except IndexError:
        found, *others = _fetch()
        _pool.extend(others)
    return UUID(bytes=found, version=4)


def _fetch() -> list[bytes]:
    fetched = os.urandom(_ID_BYTES * _AT_ONCE)
    return [fetched[start : start + _ID_BYTES] for start in range(0, len(fetched), _ID_BYTES)]


os.register_at_fork(after_in_child=_pool.clear)
