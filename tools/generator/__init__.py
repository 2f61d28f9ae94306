"""Turns Kafka's schema, as the `kio` package holds it, into Dray's message classes."""
