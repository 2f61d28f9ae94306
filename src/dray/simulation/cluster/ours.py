"""For parts of a cluster that run without a node, in simulations and tests: the bucket is theirs."""

from __future__ import annotations


async def bucket_is_ours() -> str | None:
    return None
