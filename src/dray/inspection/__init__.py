"""Typed views of a cluster: for the console, `drayd top` and programs. No HTTP in here.

Whatever Kafka's protocol can say is asked by it, so that these views work on any Kafka. Facts that only Dray
knows (where an offset lies, what it costs) come from the stores, which are only ever read.
"""
