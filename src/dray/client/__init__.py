"""A small Kafka client for Dray's own tools, benchmarks and tests."""

from dray.client.connection import ClientError, KafkaConnection

__all__ = ["ClientError", "KafkaConnection"]
