"""The server: listens, keeps its connections within their bounds, and stops without losing answers."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog

from dray.broker.server.connection import Buffer, Dispatch
from dray.broker.server.limits.memory import MemoryBudget
from dray.broker.server.protocol import FrameProtocol
from dray.broker.server.shared import ServerResources
from dray.broker.server.tls.encryption import Encryption
from dray.broker.server.tls.handshakes import Handshakes
from dray.broker.server.tls.layer import TlsLayer

if TYPE_CHECKING:
    from dray.base.runtime import Runtime
    from dray.base.telemetry import Metrics
    from dray.broker.server.limits.answers import AnswerBudget
    from dray.broker.server.settings import Listener, ServerSettings

_log = structlog.get_logger(__name__)

SHORT_SWEEP_SECONDS: Final = 1.0


class AddressInUse(Exception):
    """Another process listens there."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(f"the address {host}:{port} is already in use")
        self.host = host
        self.port = port


class Server:
    def __init__(
        self,
        dispatch: Dispatch,
        runtime: Runtime,
        settings: ServerSettings,
        metrics: Metrics,
        allocate: Callable[[int], Buffer] = bytearray,
        newcomer_wait: Callable[[str], float] = lambda _address: 0.0,
    ) -> None:
        """`allocate` makes the memory of large frames, which need not be cleared. `newcomer_wait` is asked
        for every new connection, with its address: 0, or how many seconds it is held until it is closed."""
        self.budget = MemoryBudget(settings.buffer_bytes, settings.small_budget_bytes)
        self.addresses: dict[str, tuple[str, int]] = {}
        """The address at which each listener really listens, by its name; filled by `start`."""
        self._runtime = runtime
        self._settings = settings
        self.metrics = metrics
        self._shared = ServerResources(
            dispatch,
            runtime,
            settings=settings,
            metrics=metrics,
            budget=self.budget,
            allocate=allocate,
            newcomer_wait=newcomer_wait,
        )
        self.answers = self._shared.answers
        self._handshakes = Handshakes(self._shared)
        self._accepting: list[asyncio.Server] = []
        self._sweeping: asyncio.TimerHandle | None = None
        self._sweep_seconds = min(
            5.0,
            min(
                settings.frame_seconds,
                settings.idle_seconds,
                settings.unread_seconds,
                settings.first_request_seconds,
            )
            / 4,
        )
        metrics.memory_limit.value = settings.buffer_bytes
        metrics.memory_used.follow(lambda: self.budget.used)
        metrics.memory_peak.follow(lambda: self.budget.peak)
        metrics.memory_waiting.follow(lambda: self.budget.waiting)
        metrics.answers_limit.value = settings.most_answer_bytes
        metrics.answers_used.follow(lambda: self.answers.used)
        metrics.answers_peak.follow(lambda: self.answers.peak)
        metrics.answers_waiting.follow(lambda: self.answers.waiting)

    @property
    def address(self) -> tuple[str, int]:
        """The address of the first listener, with the real port where 0 was asked for."""
        return self.addresses[self._settings.listeners[0].name]

    @property
    def connections(self) -> int:
        return len(self._shared.members)

    async def start(self) -> None:
        """Listen on all addresses, or on none and raise."""
        try:
            for listener in self._settings.listeners:
                await self._listen(listener)
        except BaseException:
            self._stop_accepting()
            raise
        self._sweep()

    async def stop(self, grace_seconds: float) -> None:
        """Accept and read no more; let what is in flight be answered, for so long; then close."""
        self._stop_accepting()
        shared = self._shared
        shared.stopping = True
        self._handshakes.end()
        shared.newcomers.stop()
        for member in list(shared.members):
            member.drain()
        if not await self._emptied(grace_seconds):
            _log.warning("stopping with requests unanswered", connections=len(shared.members))
            for member in list(shared.members):
                member.abort()
            await self._emptied(grace_seconds)
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None

    async def _listen(self, listener: Listener) -> None:
        encryption = listener.encryption
        if encryption is None and listener.tls is not None:
            encryption = partial(Encryption, listener.tls)
        tls = encryption is not None

        def served(principal: Any = None) -> FrameProtocol:
            return FrameProtocol(self._shared, listener.name, tls, listener.asks, principal)

        def encrypted() -> TlsLayer:
            assert encryption is not None
            return TlsLayer(encryption, served, self._handshakes, listener.name, listener.identify)

        try:
            accepting = await asyncio.get_running_loop().create_server(
                encrypted if tls else served,
                listener.host,
                listener.port,
                backlog=self._settings.backlog,
            )
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise AddressInUse(listener.host, listener.port) from error
            raise
        self._accepting.append(accepting)
        host, port = accepting.sockets[0].getsockname()[:2]
        self.addresses[listener.name] = (host, port)
        _log.info("listening", listener=listener.name, host=host, port=port, tls=tls)

    def _stop_accepting(self) -> None:
        for accepting in self._accepting:
            accepting.close()
        self._accepting.clear()

    async def _emptied(self, seconds: float) -> bool:
        """True once every connection is gone and every request done; False when time ran out.
        Even with no time at all the loop turns once, so that every request has begun: one that is
        cancelled before its first step would never give back what it holds."""
        shared = self._shared
        if not shared.members:
            return True
        empty = asyncio.Event()
        shared.when_empty = empty.set
        try:
            await asyncio.wait_for(empty.wait(), seconds)
        except TimeoutError:
            return False
        finally:
            shared.when_empty = None
        return True

    def _sweep(self) -> None:
        now = self._runtime.monotonic()
        for member in list(self._shared.members):
            try:
                member.sweep(now)
            except Exception as error:  # an error of one connection must not stop the sweep of the others
                self._runtime.background.report("sweep connections", error)
        try:
            relieve_answers(self._shared.members, self.answers, now)
            relieve_frames(list(self._shared.members), self.budget)
        except Exception as error:
            self._runtime.background.report("sweep connections", error)
        short = self.budget.waiting or self.answers.waiting
        seconds = min(self._sweep_seconds, SHORT_SWEEP_SECONDS) if short else self._sweep_seconds
        self._sweeping = asyncio.get_running_loop().call_later(seconds, self._sweep)


# --- connections that are closed when memory is short
#
# Only those whose peers hold memory without making progress. For answers: those whose peer has taken none
# for `unread_seconds`, or next to nothing for long; the longest first, and no more than waiting answers
# need. For frames: the slowest first, while unfinished frames hold more than a quarter of the budget.

UNREAD: Final = "answers not read while memory is short"
TOO_SLOW: Final = "frame too slow while memory is short"

_UNFINISHED_SHARE: Final = 4


class DroppableConnection(Protocol):
    """A connection, as this module sees it."""

    @property
    def pace(self) -> float | None:
        """The pace of a frame that is too slow to stay, else None."""

    @property
    def answer_bytes(self) -> int: ...

    def unread_for(self, now: float) -> float:
        """How long the peer has taken no answers; 0 if it makes progress."""

    def drop(self, kind: str) -> None:
        """Close it now."""


def relieve_answers(members: Iterable[DroppableConnection], answers: AnswerBudget, now: float) -> None:
    if not answers.waiting:
        return
    answers.look_again()
    missing = answers.missing
    if not missing:
        return
    unread = [(seconds, member) for member in members if (seconds := member.unread_for(now)) > 0]
    for _, member in sorted(unread, key=lambda each: each[0], reverse=True):
        if missing <= 0:
            break
        missing -= member.answer_bytes
        member.drop(UNREAD)


def relieve_frames(members: Iterable[DroppableConnection], budget: MemoryBudget) -> None:
    if not budget.waiting:
        return
    slow = [(pace, member) for member in members if (pace := member.pace) is not None]
    for _, member in sorted(slow, key=lambda each: each[0]):
        if budget.unfinished * _UNFINISHED_SHARE <= budget.bulk_limit:
            break
        member.drop(TOO_SLOW)
