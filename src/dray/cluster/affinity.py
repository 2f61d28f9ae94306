"""Which broker a client should talk to about a domain's streams.

Any broker can serve any stream: affinity is never correctness, it only keeps the writers of a domain
few and its caches warm. Every broker must give the same answer for the same membership.
"""

from __future__ import annotations

from collections.abc import Sequence

from dray.cluster.broker import Broker


def leader_for(domain: int, brokers: Sequence[Broker]) -> Broker:
    """`brokers` are in the order of their ids, and there is at least one."""
    return brokers[domain % len(brokers)]
