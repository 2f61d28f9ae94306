"""A Kafka whose broker is far from its controller: it learns of each change long after it was answered."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.services.kafka import KafkaProcess
from tests.services.process import answers_api_versions, free_port
from tests.services.proxy import TcpProxy

SECONDS: Final = 0.15


class _Controller(KafkaProcess):
    def is_ready(self) -> bool:
        return answers_api_versions("127.0.0.1", self.controller_port)


@contextmanager
def late_kafka(directory: Path, settings: Mapping[str, str]) -> Iterator[KafkaProcess]:
    """The broker."""
    folders = directory / "controller", directory / "broker"
    for folder in folders:
        folder.mkdir()
    port = free_port()
    listener = f"CONTROLLER://127.0.0.1:{port}"
    alone = {"process.roles": "controller", "listeners": listener, "advertised.listeners": listener}
    with _Controller(folders[0], alone, controller_port=port), TcpProxy(port) as proxy:
        proxy.delay(SECONDS)
        with KafkaProcess(folders[1], settings, node=2, controller_port=proxy.port) as broker:
            yield broker
