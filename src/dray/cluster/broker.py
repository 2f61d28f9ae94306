"""A broker as the others see it, and the value it is registered with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from dray.metadata.values import ValueCorrupt, seal_json, unseal_json

BROKER_FORMAT: Final = 1

_NONE: Final = UUID(int=0)


@dataclass(frozen=True, slots=True)
class AdvertisedListener:
    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Broker:
    broker_id: int
    listeners: tuple[AdvertisedListener, ...]
    zone: str | None = None
    rack: str | None = None
    started_ms: int = 0
    build: str = ""
    machine: str = ""  # with the process id: lets a restart on the same machine see that it died
    process: int = 0
    incarnation: UUID = _NONE  # one per registration: tells our own value from a namesake's

    @property
    def host(self) -> str:
        return self.listeners[0].host

    @property
    def port(self) -> int:
        return self.listeners[0].port

    def at(self, listener: str) -> AdvertisedListener:
        """Where clients of that listener reach this broker; its first listener if it has none such."""
        return next((known for known in self.listeners if known.name == listener), self.listeners[0])


def encode_broker(broker: Broker) -> bytes:
    return seal_json(
        BROKER_FORMAT,
        {
            "listeners": [[listener.name, listener.host, listener.port] for listener in broker.listeners],
            "zone": broker.zone,
            "rack": broker.rack,
            "started_ms": broker.started_ms,
            "build": broker.build,
            "machine": broker.machine,
            "process": broker.process,
            "incarnation": broker.incarnation.hex,
        },
    )


def decode_broker(broker_id: int, value: bytes) -> Broker:
    what = f"broker {broker_id}"
    _, fields = unseal_json(what, value, BROKER_FORMAT)
    try:
        return Broker(
            broker_id,
            tuple(
                AdvertisedListener(str(name), str(host), int(port))
                for name, host, port in fields["listeners"]
            ),
            fields["zone"],
            fields["rack"],
            int(fields["started_ms"]),
            str(fields["build"]),
            str(fields["machine"]),
            int(fields["process"]),
            UUID(hex=fields["incarnation"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueCorrupt(what, repr(error)) from error
