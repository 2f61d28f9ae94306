"""Sockets, framing, pipelining and back-pressure; HTTP for health and metrics. No Kafka in here."""

from dray.runtime import CloseConnection
from dray.server.connection import Answer, Buffer, Connection, Dispatch
from dray.server.health import Check, Health
from dray.server.http import HttpAnswer, HttpServer, HttpSettings, Route
from dray.server.http_requests import HttpRequest
from dray.server.memory import MemoryBudget
from dray.server.server import AddressInUse, Server
from dray.server.settings import Listener, ServerSettings

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
