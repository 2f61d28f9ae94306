"""The real parts that tests and benchmarks drive: brokers as processes, Apache Kafka, tools.

Nothing here knows Dray's insides: a server is a process with a port, a log file, and a question that it
answers when it is ready.
"""
