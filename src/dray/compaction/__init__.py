"""Compaction: WAL ranges become Parquet files, which the log and the topic's Iceberg table share.

`docs/design/0050-compaction.md` says which module does which step of the commit protocol.
"""
