"""Memory that the process no longer uses, given back to the system.

Brokers tell glibc never to trim its heap by itself (`docs/design/0006`): under load that costs a third of the
work of producing. When caches were emptied because they were not used, there is no such load, and the system
may have the memory.
"""

from __future__ import annotations

import ctypes
import sys


def give_back() -> bool:
    """False where the allocator knows no such call (musl, macOS). Not for the event loop: the whole heap is
    looked through."""
    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except AttributeError:
        return False
    trim.argtypes = (ctypes.c_size_t,)
    trim.restype = ctypes.c_int
    trim(0)
    return True
