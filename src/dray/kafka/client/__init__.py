"""A small Kafka client for Dray's own tools, its Spark source, and tests. Works on Apache Kafka too.

`Dialer` says how to connect (`properties` makes one of what users write), `Cluster` finds brokers and
leaders, `admin`, `groups` and `records` ask them.
"""

from dray.kafka.client.cluster import Cluster
from dray.kafka.client.connection import Dialer, KafkaConnection
from dray.kafka.client.errors import AuthenticationFailed, ClientError, RequestFailed

__all__ = ["AuthenticationFailed", "ClientError", "Cluster", "Dialer", "KafkaConnection", "RequestFailed"]
