"""Kafka's APIs, one module each: request in, response out. `registry` lists them, `dispatcher` runs them."""

from dray.api.context import (
    ApiSettings,
    ClientConnection,
    Context,
    Feature,
    LogService,
    Services,
    VersionRange,
)
from dray.api.dispatcher import Dispatcher, Observer
from dray.api.errors import RefuseConnection
from dray.api.handler import Handler, handles
from dray.api.registry import HANDLERS

__all__ = [
    "HANDLERS",
    "ApiSettings",
    "ClientConnection",
    "Context",
    "Dispatcher",
    "Feature",
    "Handler",
    "LogService",
    "Observer",
    "RefuseConnection",
    "Services",
    "VersionRange",
    "handles",
]
