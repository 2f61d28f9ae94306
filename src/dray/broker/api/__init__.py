"""Kafka's APIs, one module each: request in, response out. `registry` lists them, `dispatcher` runs them."""

from dray.broker.api.dispatcher import Dispatcher, Observer
from dray.broker.api.registry import HANDLERS
from dray.broker.api.shared import (
    ApiSettings,
    ClientConnection,
    Context,
    Feature,
    Handler,
    LogService,
    RefuseConnection,
    Services,
    VersionRange,
    handles,
)

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
