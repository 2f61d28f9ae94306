"""Logs that others wrote become topics: what a bucket or a directory holds, which of it makes a partition,
and the steps that lay it down.

`inventory` looks, one module per layout; `lineage` chooses without reading anything; `plan` puts both
together and is what a user is shown. `attach` carries a plan out: every step is a compare-and-set of the
topic's migration record (`record`), so that any process can go on where another stopped.
"""
