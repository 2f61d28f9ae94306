"""A Kafka cluster that still owns a topic: what is read of it, how its writers are fenced off, and the order
of the steps after which Dray owns the topic.

Nothing here knows Dray's own log: what must happen there is asked through `Target`.
"""
