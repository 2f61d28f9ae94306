"""The process that Spark's Python workers are forked from.

Modules that are loaded here once are there in all workers, and in memory once. Also, Spark has every task
drop what the import system knows of the file system. It then reads every zip file on the path again: 0.15 s
per task, without need, since no module of ours appears while a worker lives. So that is turned off here.
"""

import ctypes
import importlib
from contextlib import suppress

import pyarrow
import pyarrow.parquet
from pyspark import daemon

import dray.tables.compaction.spark.worker  # noqa: F401

_M_ARENA_MAX = -8


def keep_memory_low() -> None:
    """A worker fills and frees the same few mebibytes over and over, from several threads. Left to itself,
    the C library keeps freed memory apart for every thread, and Arrow some more: half as much again."""
    with suppress(AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())


importlib.invalidate_caches = lambda: None

if __name__ == "__main__":
    keep_memory_low()
    daemon.manager()  # type: ignore[no-untyped-call]
