"""What a cluster looks like, as typed views: for the console, `drayd top` and programs. No HTTP in here.

Whatever Kafka's protocol can say is asked by it, so that these views work on any Kafka. What only Dray knows
(where an offset lies, what it costs) comes from the stores, which are only ever read.
"""
