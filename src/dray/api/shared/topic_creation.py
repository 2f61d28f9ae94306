"""Who may create a topic: by a right to it, or by one to the cluster."""

from __future__ import annotations

from dray.api.shared.checks import CREATE_IN_CLUSTER, CREATE_TOPIC
from dray.api.shared.context import Context


def may_create(context: Context, name: str) -> bool:
    """Asks for the topic first: then its name is in the audit log as that of the resource."""
    return (
        context.sees(CREATE_TOPIC, name)
        or context.sees(CREATE_IN_CLUSTER, about=f"topic {name}")
        or context.may(CREATE_TOPIC, name)  # which it may not: this notes it
    )
