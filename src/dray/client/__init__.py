"""A small Kafka client for Dray's own tools, benchmarks and tests."""

from dray.client.connection import KafkaConnection
from dray.client.errors import ClientError, RequestFailed

__all__ = ["ClientError", "KafkaConnection", "RequestFailed"]
