"""A live Kafka topic that moves to Dray: a classic source, writers, migrators, and a ledger."""
