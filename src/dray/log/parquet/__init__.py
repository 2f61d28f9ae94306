"""Parquet files with the schema of a topic's table: written in a stream, read by row group.

Bytes only: nothing here does I/O, or knows where files lie and who reads them. pyarrow is large, so it is
imported on first use, by whichever thread has a file to write or to read. `docs/design/0051-parquet-files.md`
says how the files are laid out, and why.
"""
