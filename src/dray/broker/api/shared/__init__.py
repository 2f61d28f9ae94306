"""Things that several API modules need: who asks, what may be asked, and the answers that they share.

`context` and `handler` are of every request; `errors` knows Kafka's codes; `partitions` and `configs` are
about what their names say.
"""

from dray.broker.api.shared.checks import Check, Denial
from dray.broker.api.shared.configs import (
    ResourceType,
    alter_each,
    check_named,
    describe_broker_configs,
    describe_config,
    describe_created,
    describe_group_configs,
)
from dray.broker.api.shared.context import (
    NO_OPERATIONS,
    ApiSettings,
    ClientConnection,
    Context,
    Feature,
    LogService,
    Services,
    VersionRange,
    ask_and_wait,
    client_host,
    may_still_read,
    unless_ending,
)
from dray.broker.api.shared.errors import (
    NO_TRANSACTIONS,
    RECORD_FAULTS,
    TRANSACTIONS_REFUSED,
    RefuseConnection,
    append_error,
    errors_in,
    is_kafkas_admin,
    is_told_elsewhere,
    no_coordinator_of_transactions,
    read_error,
    topic_error,
)
from dray.broker.api.shared.handler import NO_CHECKS, Handler, handles
from dray.broker.api.shared.partitions import (
    Routes,
    broker_ids,
    find_leading,
    find_stream,
    find_topic,
    forget_closed,
    repeated,
)

__all__ = [
    "NO_CHECKS",
    "NO_OPERATIONS",
    "NO_TRANSACTIONS",
    "RECORD_FAULTS",
    "TRANSACTIONS_REFUSED",
    "ApiSettings",
    "Check",
    "ClientConnection",
    "Context",
    "Denial",
    "Feature",
    "Handler",
    "LogService",
    "RefuseConnection",
    "ResourceType",
    "Routes",
    "Services",
    "VersionRange",
    "alter_each",
    "append_error",
    "ask_and_wait",
    "broker_ids",
    "check_named",
    "client_host",
    "describe_broker_configs",
    "describe_config",
    "describe_created",
    "describe_group_configs",
    "errors_in",
    "find_leading",
    "find_stream",
    "find_topic",
    "forget_closed",
    "handles",
    "is_kafkas_admin",
    "is_told_elsewhere",
    "may_still_read",
    "no_coordinator_of_transactions",
    "read_error",
    "repeated",
    "topic_error",
    "unless_ending",
]
