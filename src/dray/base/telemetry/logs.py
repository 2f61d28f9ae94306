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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from datetime import UTC, datetime
from functools import partial
from io import StringIO
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO, cast

import structlog
from structlog.typing import BindableLogger, EventDict, Processor, WrappedLogger

from dray.base.telemetry.levels import level_of

if TYPE_CHECKING:
    from dray.base.runtime import Runtime


LogFormat = Literal["console", "json"]

_SECRET = re.compile(r"passw|secret|token|credential|private_?key|api_?key|authorization", re.IGNORECASE)
MASK = "***"
AUDIT = ".audit"
"""The ending of the names of loggers whose lines are written at any level."""
LINES_A_MINUTE = 60
WARNINGS_A_MINUTE = 10
"""Of one event, at once and from then on: lines of level info, and those of the levels above."""
_EVENTS = 1000
_QUOTED = frozenset(" \t=\r\n\"'")
"""The characters for which structlog's renderer for consoles puts a text into quotes."""


class RequestContext:
    """The request that is being worked on."""

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
    repeated = RepeatedLines(runtime.monotonic)
    shared: list[Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        _Timestamp(runtime),
        _RequestFields(runtime.random),
        _ProcessFields(fields or {}),
        mask_secrets,
        bound_texts,
    ]
    rendering = _rendering(format, target)
    structlog.configure(
        processors=[repeated, *shared, *rendering],
        wrapper_class=cast(type[BindableLogger], _filtering),
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
    handler.addFilter(partial(_has_room, repeated))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)


def _has_room(repeated: RepeatedLines, record: logging.LogRecord) -> bool:
    """Of other libraries: what they say quotes what clients send, so all lines of a logger are one event."""
    dropped = repeated.take(record.name, record.levelname.lower(), "")
    if dropped:
        record.msg, record.args = f"{record.getMessage()} (more since the last line: {dropped})", ()
    return dropped is not None


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
    """Knows its name, as the standard library's loggers do. A terminal or a pipe that is gone costs the line,
    and not the work that the line is about."""

    def __init__(self, name: str, file: TextIO) -> None:
        super().__init__(file)
        self.name = name

    def msg(self, message: str) -> None:
        with suppress(OSError):
            super().msg(message)

    log = debug = info = warn = warning = msg
    fatal = failure = err = error = critical = exception = msg


def _filtering(logger: _NamedLogger, *given: Any, **named: Any) -> Any:
    """A logger that leaves out what is below its level, as it is now. Lines of an audit are no matter of
    level: whoever wants fewer lines does not want to lose those."""
    level = level_of(logger.name)
    if logger.name.endswith(AUDIT):
        level = min(level, logging.INFO)
    return cast(Any, structlog.make_filtering_bound_logger(level))(logger, *given, **named)


class _Timestamp:
    """From the runtime's clock, so a simulation's lines carry its virtual time."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        milliseconds = self._runtime.wall_ms()
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
        event["timestamp"] = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return event


class RepeatedLines:
    """Drops lines beyond a rate, of each event by itself: neither a client nor a store that fails can fill a
    disk with them. The next line of the event that is written counts those that were dropped before it. Lines
    of level debug were asked for, and an audit is to be complete."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._left: dict[tuple[str, str], tuple[float, float, int]] = {}  # lines, when, and how many dropped

    def __call__(self, logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        dropped = self.take(getattr(logger, "name", ""), method, str(event["event"]))
        if dropped is None:
            raise structlog.DropEvent
        if dropped:
            event["more_since_the_last_line"] = dropped
        return event

    def take(self, name: str, method: str, event: str) -> int | None:
        """How many lines of the event were dropped before this one; None where this one is, too."""
        if method == "debug" or name.endswith(AUDIT):
            return 0
        lines = LINES_A_MINUTE if method == "info" else WARNINGS_A_MINUTE
        now = self._monotonic()
        key = name, event
        left, since, dropped = self._left.pop(key, (float(lines), now, 0))
        left = min(float(lines), left + (now - since) * lines / 60)
        if left < 1:
            self._left[key] = left, now, dropped + 1
            return None
        self._left[key] = left - 1, now, 0
        if len(self._left) > _EVENTS:
            del self._left[next(iter(self._left))]
        return dropped


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
        return [
            structlog.processors.format_exc_info,
            bound_traceback,
            structlog.processors.JSONRenderer(default=str),
        ]
    if format == "console":
        return [
            show_unprintable,
            structlog.dev.ConsoleRenderer(
                colors=target.isatty(),
                # the default prints local variables, and with them what `mask_secrets` hides
                exception_formatter=_write_traceback,
            ),
        ]
    raise ValueError(f"unknown log format {format!r}: console or json")


def show_unprintable(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Clients choose names, and a terminal does what control characters say: they are shown as `\\x1b`. JSON
    has no such characters."""
    for key, value in event.items():
        if key in ("event", "stack"):
            event[key] = _escaped(str(value))
        elif isinstance(value, str):
            if not _QUOTED & set(value):  # else the renderer shows its `repr`
                event[key] = _escaped(value)
        elif key != "exc_info" and not (text := repr(value)).isprintable():
            event[key] = _escaped(text)
    return event


def _escaped(text: str) -> str:
    """Stricter than `runtime.shown.printable`: a log need not show text of any language as it was written."""
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or character == "\n"
        else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def _write_traceback(target: TextIO, exc_info: Any) -> None:
    shown = StringIO()
    structlog.dev.plain_traceback(shown, exc_info)
    target.write(shortened(_escaped(shown.getvalue()), LONGEST_TRACEBACK))


# --- how long a line is
#
# Whatever clients call things: kept in the one way that all lines of a process go, and not by those who
# write them. How many lines there are of an event: `RepeatedLines`.


LONGEST_TEXT: Final = 2000
LONGEST_TRACEBACK: Final = 16_000
LONGEST_ITEM: Final = 256
_MOST_ITEMS: Final = 100
_DEEPEST: Final = 2


def bound_texts(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Clients choose names, and error messages quote them."""
    for key, value in event.items():
        if key != "exc_info":
            event[key] = _bounded(value, 0)
    return event


def bound_traceback(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Once it is a text."""
    if isinstance(event.get("exception"), str):
        event["exception"] = shortened(event["exception"], LONGEST_TRACEBACK)
    return event


def shortened(text: str, longest: int = LONGEST_TEXT) -> str:
    """Without its middle: a traceback begins with the request and ends with the reason."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]} [{len(text) - 2 * half} characters left out] {text[-half:]}"


def _bounded(value: Any, depth: int) -> Any:
    longest = LONGEST_ITEM if depth else LONGEST_TEXT
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return shortened(value, longest)
    if isinstance(value, Mapping) and depth < _DEEPEST:
        some = islice(value.items(), _MOST_ITEMS)
        return {shortened(str(key), LONGEST_ITEM): _bounded(inner, depth + 1) for key, inner in some}
    if isinstance(value, list | tuple) and depth < _DEEPEST:
        return [_bounded(inner, depth + 1) for inner in value[:_MOST_ITEMS]]
    text = str(value)
    return value if len(text) <= longest else shortened(text, longest)
