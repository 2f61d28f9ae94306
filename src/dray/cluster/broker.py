"""A broker as the others see it, and the value it is registered with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple
from uuid import UUID

from dray.metadata.codec import FROM_KEY, NOT_IF_NONE, HexUuid, JsonCodec

BROKER_FORMAT: Final = 1

_NONE: Final = UUID(int=0)


class AdvertisedListener(NamedTuple):
    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Broker:
    broker_id: Annotated[int, FROM_KEY]
    listeners: tuple[AdvertisedListener, ...]
    zone: str | None = None
    rack: str | None = None
    started_ms: int = 0
    build: str = ""
    machine: str = ""  # with the process id: lets a restart on the same machine see that it died
    process: int = 0
    incarnation: HexUuid = _NONE  # one per registration: tells our own value from a namesake's
    http: Annotated[str | None, NOT_IF_NONE] = None  # where its health and numbers are, as HOST:PORT

    @property
    def host(self) -> str:
        return self.listeners[0].host

    @property
    def port(self) -> int:
        return self.listeners[0].port

    def at(self, listener: str) -> AdvertisedListener:
        """Where clients of that listener reach this broker; its first listener if it has none such."""
        return next((known for known in self.listeners if known.name == listener), self.listeners[0])


_CODEC: Final = JsonCodec(Broker, BROKER_FORMAT)


def encode_broker(broker: Broker) -> bytes:
    return _CODEC.encode(broker)


def decode_broker(broker_id: int, value: bytes) -> Broker:
    return _CODEC.decode(f"broker {broker_id}", value, broker_id=broker_id)
