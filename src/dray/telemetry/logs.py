"""Structured logs: one line per event, for people (`console`) or for machines (`json`).

Each line carries the time, the level, the room that wrote it, and the request it was written for.
A request is bound by putting one small object into a context variable; it is only unfolded when a
line is really written, and only then does it get the trace id that its lines share. It is the broker's own:
Kafka's protocol has no place in which a client could send one.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, Any, Literal, TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

if TYPE_CHECKING:
    from dray.runtime import Runtime

LogFormat = Literal["console", "json"]

_SECRET = re.compile(r"passw|secret|token|credential|private_?key|api_?key|authorization", re.IGNORECASE)
MASK = "***"


class RequestContext:
    """What is known of the request being worked on."""

    __slots__ = ("api", "client_id", "correlation_id", "peer", "trace_id")

    def __init__(self, correlation_id: int, api: str, client_id: str | None, peer: str) -> None:
        self.correlation_id = correlation_id
        self.trace_id: str | None = None  # from its first line on
        self.api = api
        self.client_id = client_id
        self.peer = peer


_request: ContextVar[RequestContext | None] = ContextVar("dray_request", default=None)


def bind_request(
    correlation_id: int, api: str, client_id: str | None, peer: str
) -> Token[RequestContext | None]:
    """From here on, in this task and those it starts, every line names this request. The server
    runs each request in a task of its own, so there is no need to unbind."""
    return _request.set(RequestContext(correlation_id, api, client_id, peer))


def current_request() -> RequestContext | None:
    return _request.get()


def configure_logging(
    format: LogFormat,
    level: str,
    runtime: Runtime,
    stream: TextIO | None = None,
    fields: Mapping[str, Any] | None = None,
) -> None:
    """Set up logging for the process, the standard library's loggers (asyncio, obstore) included.
    Lines go to standard error unless a stream is given: standard output belongs to the commands.
    `fields` are on every line: they tell this process from others whose lines end up in one place."""
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"unknown log level {level!r}")
    target = sys.stderr if stream is None else stream
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        _Timestamp(runtime),
        _RequestFields(runtime.random),
        _ProcessFields(fields or {}),
        mask_secrets,
    ]
    rendering = _rendering(format, target)
    structlog.configure(
        processors=[*shared, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=lambda name=None, *_: _NamedLogger(name or "dray", target),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)


@contextmanager
def quiet_logs() -> Iterator[None]:
    """For a command that answers one question: what the rooms have to say goes to standard error, if it is a
    warning or worse. Standard output is the answer's alone. No secret of the command is shown, as in
    `configure_logging`."""
    before = structlog.get_config()
    structlog.configure(
        processors=[structlog.stdlib.add_log_level, mask_secrets, *_rendering("console", sys.stderr)],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    try:
        yield
    finally:
        structlog.configure(**before)


def mask_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """No password ever reaches a log, even by a careless caller."""
    for key, value in event.items():
        if _SECRET.search(key):
            event[key] = MASK
        elif isinstance(value, Mapping | list | tuple):
            event[key] = _masked(value)
    return event


def _masked(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            key: MASK if isinstance(key, str) and _SECRET.search(key) else _masked(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_masked(inner) for inner in value]
    return value


class _NamedLogger(structlog.WriteLogger):
    """Knows its name, as the standard library's loggers do."""

    def __init__(self, name: str, file: TextIO) -> None:
        super().__init__(file)
        self.name = name


class _Timestamp:
    """From the runtime's clock, so a simulation's lines carry its virtual time."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        milliseconds = self._runtime.wall_ms()
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
        event["timestamp"] = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return event


class _ProcessFields:
    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = dict(fields)

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        for name, value in self._fields.items():
            event.setdefault(name, value)
        return event


class _RequestFields:
    def __init__(self, random: Random) -> None:
        self._random = random

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        request = _request.get()
        if request is not None:
            if request.trace_id is None:
                request.trace_id = f"{self._random.getrandbits(128):032x}"
            event.setdefault("correlation_id", request.correlation_id)
            event.setdefault("trace_id", request.trace_id)
            event.setdefault("api", request.api)
            event.setdefault("client_id", request.client_id)
            event.setdefault("peer", request.peer)
        return event


def _rendering(format: LogFormat, target: TextIO) -> list[Processor]:
    if format == "json":
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    if format == "console":
        return [
            structlog.dev.ConsoleRenderer(
                colors=target.isatty(),
                # the default prints local variables, and with them what `mask_secrets` hides
                exception_formatter=structlog.dev.plain_traceback,
            )
        ]
    raise ValueError(f"unknown log format {format!r}: console or json")
