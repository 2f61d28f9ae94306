"""Object storage. `contract` says what it is; the engines are `local`, `memory` and `remote`."""

from dray.objects.contract import (
    Buffer,
    ObjectError,
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    ObjectStore,
    RangeOutside,
)
from dray.objects.factory import open_store
from dray.objects.local.store import LocalStore
from dray.objects.memory import MemoryBucket, MemoryObjects

__all__ = [
    "Buffer",
    "LocalStore",
    "MemoryBucket",
    "MemoryObjects",
    "ObjectError",
    "ObjectExists",
    "ObjectInfo",
    "ObjectMissing",
    "ObjectStore",
    "RangeOutside",
    "open_store",
]
