"""A Kafka cluster that still owns a topic: what is read of it, how its writers are fenced off, and when a
partition of it may become Dray's. Nothing here knows Dray's own log: `migration/live/` does.
"""
