"""Real clients behind one small interface: what one writes, every other must read as it was written."""

from __future__ import annotations

from collections.abc import Callable

from tests.services.clients.aiokafka_client import AioKafka, AioKafkaReader
from tests.services.clients.confluent_client import Confluent, ConfluentReader
from tests.services.clients.contract import CODECS, Client, Message
from tests.services.clients.go_client import FranzGo, FranzGoReader
from tests.services.clients.java_client import Java, JavaReader
from tests.services.clients.kafka_python_client import KafkaPython, KafkaPythonReader
from tests.services.clients.kcat_client import Kcat, KcatReader
from tests.services.clients.reader import Place, Reader, Reading

CLIENTS: dict[str, type[Client]] = {
    "confluent": Confluent,
    "aiokafka": AioKafka,
    "kafka-python": KafkaPython,
    "kcat": Kcat,
    "java": Java,
}

BUILT_CLIENTS: dict[str, type[Client]] = {"franz-go": FranzGo}
"""They are built first, which takes a minute: for long runs."""

READERS: dict[str, tuple[Callable[[Reading], Reader], str]] = {
    "confluent-classic": (ConfluentReader, "classic"),
    "confluent-consumer": (ConfluentReader, "consumer"),
    "aiokafka": (AioKafkaReader, "classic"),
    "kafka-python": (KafkaPythonReader, "classic"),
    "kcat": (KcatReader, "classic"),
    "java-classic": (JavaReader, "classic"),
    "java-consumer": (JavaReader, "consumer"),
}
"""Consumers that stay, with the protocol of their group."""

BUILT_READERS: dict[str, tuple[Callable[[Reading], Reader], str]] = {"franz-go": (FranzGoReader, "classic")}
"""Those of `BUILT_CLIENTS`."""

__all__ = [
    "BUILT_CLIENTS",
    "BUILT_READERS",
    "CLIENTS",
    "CODECS",
    "READERS",
    "Client",
    "Message",
    "Place",
    "Reader",
    "Reading",
]
