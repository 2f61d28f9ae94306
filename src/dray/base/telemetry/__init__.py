"""The telemetry of a running Dray for its operators: numbers (`metrics`) and lines (`logs`).

At the bottom of the house: every room may use it, and it knows none of them. The names here are loaded when
they are used: a command that only keeps its logs quiet has no metrics.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from dray.base.runtime.logger import load_structlog

if TYPE_CHECKING:
    from dray.base.telemetry.answered import AnsweredErrors
    from dray.base.telemetry.instruments import Counter, Family, Gauge, Histogram
    from dray.base.telemetry.logs import (
        RequestContext,
        bind_request,
        configure_logging,
        current_request,
        quiet_logs,
    )
    from dray.base.telemetry.metrics import (
        ApiMetrics,
        Metrics,
        ProcessMetrics,
        TopicCounters,
        TopicTraffic,
        uncounted_errors,
        uncounted_traffic,
    )

__all__ = [
    "AnsweredErrors",
    "ApiMetrics",
    "Counter",
    "Family",
    "Gauge",
    "Histogram",
    "Metrics",
    "ProcessMetrics",
    "RequestContext",
    "TopicCounters",
    "TopicTraffic",
    "bind_request",
    "configure_logging",
    "current_request",
    "quiet_logs",
    "uncounted_errors",
    "uncounted_traffic",
]

_HOMES: Final = {
    "AnsweredErrors": "answered",
    "Counter": "instruments",
    "Family": "instruments",
    "Gauge": "instruments",
    "Histogram": "instruments",
    "RequestContext": "logs",
    "bind_request": "logs",
    "configure_logging": "logs",
    "current_request": "logs",
    "quiet_logs": "logs",
    "ApiMetrics": "metrics",
    "Metrics": "metrics",
    "ProcessMetrics": "metrics",
    "TopicCounters": "metrics",
    "TopicTraffic": "metrics",
    "uncounted_errors": "metrics",
    "uncounted_traffic": "metrics",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if home == "logs":
        load_structlog()
    return getattr(import_module(f"{__name__}.{home}"), name)
