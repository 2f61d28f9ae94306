"""Which API has which messages: look them up by key, and load their module only then."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, cast

from dray.protocol.message import Request, Response
from dray.protocol.messages.schemas import SCHEMAS


@cache
def request_class(api_key: int) -> type[Request[Any]]:
    """`KeyError` if there are no messages for this key."""
    return cast("type[Request[Any]]", _message_class(api_key, "Request"))


@cache
def response_class(api_key: int) -> type[Response]:
    """`KeyError` if there are no messages for this key."""
    return cast("type[Response]", _message_class(api_key, "Response"))


def _message_class(api_key: int, direction: str) -> object:
    schema = SCHEMAS[api_key]
    return getattr(import_module(f"dray.protocol.messages.{schema.module}"), schema.name + direction)
