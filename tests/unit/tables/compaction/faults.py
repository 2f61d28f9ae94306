"""A fault at one of all the calls that a compactor makes to its stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from tests.services.compaction_cluster import Worker

from dray.metadata.contract import Ambiguous, Unavailable
from dray.objects.contract import ObjectError
from dray.tables.contract import TablesUnavailable

READS = ("get", "scan", "barrier", "_send_to", "get_ranges")


@dataclass
class Fault:
    """Something happens to the call of that number, counted over all calls of a worker to its stores."""

    number: int
    how: str  # "crash" after it happened, "error" before, "lost reply" after
    seen: int = 0
    hit: str = ""


def count_calls(worker: Worker, fault: Fault, stop: Callable[[], None]) -> None:
    """Put the fault between a worker and its stores."""

    def wrap(target: object, name: str, error: Exception, unclear: Exception) -> None:
        kept = getattr(target, name)

        async def called(*arguments, **options):
            number = fault.seen
            fault.seen += 1
            if number != fault.number:
                return await kept(*arguments, **options)
            fault.hit = f"{type(target).__name__}.{name}{arguments[:2]}"
            if fault.how == "error":
                raise error
            await kept(*arguments, **options)
            if fault.how == "crash":
                stop()
                await asyncio.sleep(3600)
            raise unclear

        setattr(target, name, called)

    for target, name in calls_of(worker):
        if fault.how != "lost reply" or name not in READS:
            if target in (worker.store, worker.streams._barriers):
                wrap(target, name, Unavailable("told to"), Ambiguous("told to"))
            else:
                kind = TablesUnavailable if target is worker.tables else ObjectError
                wrap(target, name, kind("told to"), kind("told to"))


def calls_of(worker: Worker) -> list[tuple[object, str]]:
    """Every way in which a worker reaches its stores."""
    store = [(worker.store, name) for name in ("get", "scan", "barrier", "write")]
    shared = (worker.streams._barriers, "_send_to")  # it has known the store's own since it was made
    objects = [(worker.objects, name) for name in ("get_ranges", "put", "put_stream", "delete")]
    return [*store, shared, *objects, (worker.tables, "call")]
