"""The process that Spark's Python workers are forked from.

Loaded here once, what they need is there in all of them, and in memory once. And Spark has every task forget
what the import system knows of the file system, which then reads through every zip file on the path again:
0.15 s per task, for nothing, since no module of ours appears while a worker lives.
"""

import importlib

import pyarrow.parquet  # noqa: F401
from pyspark import daemon

import dray.compaction.spark.worker  # noqa: F401

importlib.invalidate_caches = lambda: None

if __name__ == "__main__":
    daemon.manager()  # type: ignore[no-untyped-call]
