"""Sockets, framing, pipelining and back-pressure; HTTP for health and metrics. No Kafka in here."""

from dray.base.runtime import CloseConnection
from dray.broker.server.connection import Answer, Buffer, Connection, Dispatch
from dray.broker.server.http.health import Check, Health
from dray.broker.server.http.requests import HttpRequest
from dray.broker.server.http.server import HttpAnswer, HttpServer, HttpSettings, Route
from dray.broker.server.limits.memory import MemoryBudget
from dray.broker.server.server import AddressInUse, Server
from dray.broker.server.settings import Listener, ServerSettings

__all__ = [
    "AddressInUse",
    "Answer",
    "Buffer",
    "Check",
    "CloseConnection",
    "Connection",
    "Dispatch",
    "Health",
    "HttpAnswer",
    "HttpRequest",
    "HttpServer",
    "HttpSettings",
    "Listener",
    "MemoryBudget",
    "Route",
    "Server",
    "ServerSettings",
]
