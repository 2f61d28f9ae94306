"""How an API module says what it serves: a decorator on its handler, with the versions beside it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from dray.broker.api.shared.checks import Check, Denial
from dray.broker.api.shared.context import Context
from dray.kafka.protocol import ENDLESS, SCHEMAS, Request, Response

RequestType = TypeVar("RequestType", bound=Request[Any])

Function = Callable[[Context, RequestType], Awaitable[Response | None]]


Checks = Mapping[Check, Denial]
NO_CHECKS: Final[Checks] = {}
"""For APIs that any client may use: said, and not forgotten."""


@dataclass(frozen=True, slots=True)
class Handler:
    request: type[Request[Any]]
    first: int
    last: int
    advertised_from: int
    function: Callable[[Context, Any], Awaitable[Response | None]]
    name: str = ""
    checks: Checks = field(default_factory=dict)
    most_elements: int = ENDLESS

    @property
    def api_key(self) -> int:
        return self.request.API_KEY


def handles(
    request: type[RequestType],
    first: int,
    last: int,
    *,
    checks: Checks,
    advertised_from: int | None = None,
    most_elements: int = ENDLESS,
) -> Callable[[Function[RequestType]], Handler]:
    """Serve these versions. `checks`: what the handler asks of the client's rights. `advertised_from`: what
    ApiVersions calls the first, where that must differ. `most_elements`: fewer than other requests may have,
    where each makes much work."""
    schema = SCHEMAS[request.API_KEY]
    if not schema.first_version <= first <= last <= schema.last_version:
        raise ValueError(f"{request.__name__} has versions {schema.first_version} to {schema.last_version}")

    def handler_of(function: Function[RequestType]) -> Handler:
        advertised = first if advertised_from is None else advertised_from
        return Handler(request, first, last, advertised, function, schema.name, checks, most_elements)

    return handler_of
