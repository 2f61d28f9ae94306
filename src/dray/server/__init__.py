"""Sockets, framing, pipelining and back-pressure; HTTP for health and metrics. No Kafka in here."""

from dray.server.connection import Answer, Buffer, CloseConnection, Connection, Dispatch
from dray.server.memory import MemoryBudget
from dray.server.server import AddressInUse, Server
from dray.server.settings import Listener, ServerSettings

__all__ = [
    "AddressInUse",
    "Answer",
    "Buffer",
    "CloseConnection",
    "Connection",
    "Dispatch",
    "Listener",
    "MemoryBudget",
    "Server",
    "ServerSettings",
]
