"""A line in the log for everything that was changed here, and what became of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import structlog

_log = structlog.get_logger("dray.console.audit")

CONSOLE: Final = "console"
"""The principal where there is no login: the console's own."""


@contextmanager
def note(principal: str, action: str, resource: str, **about: Any) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        _log.warning(
            "console action",
            principal=principal,
            action=action,
            resource=resource,
            outcome=str(error) or repr(error),
            **about,
        )
        raise
    _log.info(
        "console action", principal=principal, action=action, resource=resource, outcome="done", **about
    )
