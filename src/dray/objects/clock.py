"""The time that an object store has: when it says it took an object of ours."""

from __future__ import annotations

from typing import Final

from dray.objects.contract import ObjectStore
from dray.runtime import Runtime

PREFIX: Final = "clocks/v1/"

_LEFT_OVER_MS: Final = 3600 * 1000


async def read_clock(objects: ObjectStore, runtime: Runtime) -> int:
    """Milliseconds since the epoch, by the store's clock. Raises `ObjectError`.

    An object is written for it and deleted again. One that a process left behind, since it died in between,
    is deleted by the next one: its age is judged by the store's clock alone.
    """
    path = f"{PREFIX}{runtime.uuid().hex}"
    await objects.put(path, [b"-"])
    try:
        now_ms = (await objects.head(path)).modified_ms
        left_over = [info async for info in objects.list(PREFIX) if info.modified_ms < now_ms - _LEFT_OVER_MS]
    finally:
        await objects.delete(path)
    for info in left_over:
        await objects.delete(info.path)
    return now_ms
