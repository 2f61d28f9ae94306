"""What several API modules need: who asks, what may be asked, and the answers that they have in common.

`context` and `handler` are of every request; `errors` knows Kafka's codes; `partitions`, `routing`, `groups`,
`configs` and `alterations` are about what their names say; `crowds` is for requests that name thousands.
"""

from dray.api.shared.alterations import alter_each, check_named
from dray.api.shared.checks import Check, Denial
from dray.api.shared.configs import (
    ResourceType,
    describe_broker_configs,
    describe_config,
    describe_created,
    describe_group_configs,
)
from dray.api.shared.context import (
    ApiSettings,
    ClientConnection,
    Context,
    Feature,
    LogService,
    Services,
    VersionRange,
    unless_ending,
)
from dray.api.shared.crowds import AT_A_TIME, PARTS_A_TURN, LargeAnswer, gather_some
from dray.api.shared.errors import (
    NO_TRANSACTIONS,
    RECORD_FAULTS,
    TRANSACTIONS_REFUSED,
    RefuseConnection,
    append_error,
    no_coordinator_of_transactions,
    read_error,
    topic_error,
)
from dray.api.shared.groups import NO_OPERATIONS, ask_and_wait, client_host, may_still_read
from dray.api.shared.handler import NO_CHECKS, Handler, handles
from dray.api.shared.partitions import (
    broker_ids,
    find_leading,
    find_stream,
    find_topic,
    forget_closed,
    repeated,
)
from dray.api.shared.routing import Routes

__all__ = [
    "AT_A_TIME",
    "NO_CHECKS",
    "NO_OPERATIONS",
    "NO_TRANSACTIONS",
    "PARTS_A_TURN",
    "RECORD_FAULTS",
    "TRANSACTIONS_REFUSED",
    "ApiSettings",
    "Check",
    "ClientConnection",
    "Context",
    "Denial",
    "Feature",
    "Handler",
    "LargeAnswer",
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
    "find_leading",
    "find_stream",
    "find_topic",
    "forget_closed",
    "gather_some",
    "handles",
    "may_still_read",
    "no_coordinator_of_transactions",
    "read_error",
    "repeated",
    "topic_error",
    "unless_ending",
]
