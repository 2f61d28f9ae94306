"""Real clients behind one small interface: what one writes, every other must read as it was written."""

from __future__ import annotations

from tests.services.clients.aiokafka_client import AioKafka
from tests.services.clients.confluent_client import Confluent
from tests.services.clients.contract import CODECS, Client, Message
from tests.services.clients.java_client import Java
from tests.services.clients.kafka_python_client import KafkaPython
from tests.services.clients.kcat_client import Kcat

CLIENTS: dict[str, type[Client]] = {
    "confluent": Confluent,
    "aiokafka": AioKafka,
    "kafka-python": KafkaPython,
    "kcat": Kcat,
    "java": Java,
}

__all__ = ["CLIENTS", "CODECS", "Client", "Message"]
