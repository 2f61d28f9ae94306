"""Dray: a Kafka-4-compatible streaming system whose brokers keep nothing."""

__version__ = "0.1.0"
