"""What several APIs of groups share: who is asking, and parked requests that end with their connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dray.api.shared.checks import READ_GROUP
from dray.api.shared.context import Context, unless_ending
from dray.groups.coordinator import NotCoordinator
from dray.groups.coordinator.machines import Event

NO_OPERATIONS: Final = -(2**31)
"""The client did not ask for them."""


def client_host(context: Context) -> str:
    """The address of the client as Kafka writes it."""
    host, _, _ = context.connection.peer.rpartition(":")
    return f"/{host.strip('[]')}"


def may_still_read(context: Context, group_id: str) -> bool:
    """Asked once more before the answer: a request may have been parked for longer than the right lasted."""
    return context.may(READ_GROUP, group_id)


async def ask_and_wait(context: Context, group_id: str, event_with: Callable[[object], Event]) -> Any:
    """The answer to a request that may be parked for long. When the connection ends first (its peer hung up,
    or this broker is stopping), the answer sends the client to look for the coordinator again. Raises
    `GroupUnavailable`."""
    answer = None
    if not context.connection.ending:
        answer = await unless_ending(context.connection, context.services.groups.ask(group_id, event_with))
    if answer is None:
        raise NotCoordinator("this connection is ending")
    return answer
