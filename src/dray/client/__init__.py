"""A small Kafka client for Dray's own tools, its Spark source, and tests. Works on Apache Kafka too.

`Dialer` says how to connect, `Cluster` finds brokers and leaders, `admin`, `groups` and `records` ask them.
"""

from dray.client.cluster import Cluster
from dray.client.connection import Dialer, KafkaConnection
from dray.client.errors import ClientError, RequestFailed

__all__ = ["ClientError", "Cluster", "Dialer", "KafkaConnection", "RequestFailed"]
