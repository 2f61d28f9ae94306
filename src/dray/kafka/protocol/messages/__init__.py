"""Kafka's messages, one module per API, written by tools/generate_messages.py.

Import the module you need (`from dray.kafka.protocol.messages.produce import ProduceRequest`); importing this
package loads none of them.
"""
