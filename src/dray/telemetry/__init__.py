"""What a running Dray tells its operators: numbers (`metrics`) and lines (`logs`).

At the bottom of the house: every room may use it, and it knows none of them.
"""

from dray.telemetry.instruments import Counter, Family, Gauge, Histogram
from dray.telemetry.logs import RequestContext, bind_request, configure_logging, current_request, quiet_logs
from dray.telemetry.metrics import ApiMetrics, Metrics, ProcessMetrics
from dray.telemetry.topic_traffic import TopicCounters, TopicTraffic, uncounted_traffic

__all__ = [
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
    "uncounted_traffic",
]
