"""Quotas of clients, request by request: what is measured, and how a client over its quota is answered.

As KIP-219: the answer leaves at once and says for how long the client is throttled, and for so long its
connection is not read. All versions are treated so: older clients do not look at the throttle time, and find
that nothing is read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from types import coroutine
from typing import Any, Final, TypeVar

from dray.broker.api.shared.context import Context
from dray.broker.security.principals import ANONYMOUS
from dray.kafka.protocol import ApiKey, Buffer, ErrorCode, Response
from dray.kafka.protocol.messages.fetch import FetchResponse
from dray.kafka.quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)

EXCEEDED: Final = (ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")

NEVER_STRICT: Final = 1 << 15
"""For what no version refuses: topics that are created because a client asked about them."""

_USER: Final = "User:"
_FETCH: Final = int(ApiKey.FETCH)
_PRODUCE: Final = int(ApiKey.PRODUCE)
_PERCENT: Final = 100.0

T = TypeVar("T")


def who(context: Context) -> tuple[str, str]:
    """The user and the client id, as quotas name them."""
    user = str(context.connection.principal or ANONYMOUS).removeprefix(_USER)
    return user, context.header.client_id or ""


def now_of(context: Context) -> int:
    return round(context.services.runtime.monotonic() * 1000)


def most_to_fetch(context: Context, most: int) -> int:
    """No more than a second's worth of the client's quota: an answer above it would be read in vain."""
    throttle = context.services.throttle
    if CONSUMER_BYTE_RATE not in throttle.table.keys:
        return most
    limit = throttle.most_at_once(CONSUMER_BYTE_RATE, *who(context))
    return most if limit is None else int(min(most, limit))


class MutationQuota:
    """How many partitions a client may create and delete (KIP-599). From `strict_since` on, what is over the
    quota is refused; older versions cannot say so, and the client waits after it was done."""

    def __init__(self, context: Context, strict_since: int) -> None:
        self.applies = CONTROLLER_MUTATION_RATE in context.services.throttle.table.keys
        self._context = context
        self._strict = context.version >= strict_since

    def admits(self, partitions: int) -> bool:
        """Record them, or refuse."""
        if not self.applies:
            return True
        context = self._context
        wait = context.services.throttle.mutate(
            *who(context), partitions, now_of(context), strict=self._strict
        )
        context.wait_ms = max(context.wait_ms, wait)
        return not (wait and self._strict)


class MeasuredRequest:
    """A request while quotas are set: what it takes, and what becomes of its answer."""

    __slots__ = ("_clock", "_context", "_seconds", "_size")

    def __init__(self, context: Context, size: int, clock: Callable[[], float]) -> None:
        """`size` is that of the request."""
        self._context = context
        self._size = size
        self._clock = clock
        self._seconds = 0.0

    def timed(self, work: Awaitable[T]) -> Awaitable[T]:
        """The same work. If request times have a quota, count its time on the event loop, which all clients
        share; not the time that it waits."""
        if REQUEST_PERCENTAGE not in self._context.services.throttle.table.keys:
            return work
        return self._step_by_step(work)

    @coroutine
    def _step_by_step(self, work: Awaitable[T]) -> Generator[Any, Any, T]:
        steps = work.__await__()
        step: Callable[[], Any] = steps.__next__
        while True:
            begun = self._clock()
            try:
                awaited = step()
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                self._seconds += self._clock() - begun
            try:
                value = yield awaited
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:
                step = _raising(steps, error)
            else:
                step = _sending(steps, value)

    def answer(self, response: Response | None) -> Sequence[Buffer] | None:
        """The body of the answer. A client that is over a quota is throttled from now on."""
        begun = self._clock()
        context = self._context
        version = context.header.api_version
        body = None if response is None else response.encode(version)
        self._seconds += self._clock() - begun
        throttle, now = context.services.throttle, now_of(context)
        user, client_id = who(context)
        wait = context.wait_ms
        key = context.header.api_key
        if key == _PRODUCE:
            wait = max(wait, throttle.record(PRODUCER_BYTE_RATE, user, client_id, self._size, now))
        elif key == _FETCH and body is not None:
            verdict = throttle.fetch(user, client_id, sum(map(len, body)), now)
            wait = max(wait, verdict.wait_ms)
            if verdict.empty:
                assert isinstance(response, FetchResponse)
                _empty(context, response)
        if response is not None:  # as in Kafka: a produce without an answer takes no request time
            spent = self._seconds * _PERCENT
            wait = max(wait, throttle.record(REQUEST_PERCENTAGE, user, client_id, spent, now))
        if not wait:
            return body
        context.connection.throttle(wait / 1000)
        context.services.throttled(wait / 1000)
        if response is None:
            return None
        if hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = min(wait, _MOST_INT)
        return response.encode(version)


_MOST_INT: Final = 2**31 - 1


def _raising(steps: Generator[Any, Any, T], error: BaseException) -> Callable[[], Any]:
    return lambda: steps.throw(error)


def _sending(steps: Generator[Any, Any, T], value: Any) -> Callable[[], Any]:
    return lambda: steps.send(value)


def _empty(context: Context, response: FetchResponse) -> None:
    """No partition, as Kafka's: the client goes on with what it knew."""
    if context.fetch is not None:
        context.fetch.withheld(response)
    response.responses = []
