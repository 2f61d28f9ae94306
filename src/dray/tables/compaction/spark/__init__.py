"""Units of compaction, written by Spark: embedded in this process, on a cluster, or through Spark Connect.

Spark hands out the work and brings back a row of statistics per file. Records never pass through it: the
Python workers read WAL objects and write Parquet files themselves.
"""
