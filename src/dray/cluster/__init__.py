"""The cluster: its identity, its brokers, and which of them should serve what."""

from dray.cluster.affinity import leader_for
from dray.cluster.broker import Broker, Listener
from dray.cluster.identity import ClusterInfo, open_cluster, uuid_text
from dray.cluster.membership import AUTOMATIC, BrokerIdTaken, Membership

__all__ = [
    "AUTOMATIC",
    "Broker",
    "BrokerIdTaken",
    "ClusterInfo",
    "Listener",
    "Membership",
    "leader_for",
    "open_cluster",
    "uuid_text",
]
