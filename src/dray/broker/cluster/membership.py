"""Which brokers are there: each registers a key that lives as long as its session.

A broker id is taken by putting its key if absent. When the key of a crashed namesake still stands, its
session has yet to run out: we wait that long, unless the caller can tell that its process is dead, and
only then say that the id is taken. A broker whose own session ends goes on serving (nothing it does
rests on being listed) and registers again: under the id that it had, or, if that id was automatic and a
newcomer has it by now, under another one, of which those who `listen` hear.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple
from uuid import UUID

import structlog

from dray.base.runtime import KeptTask, Runtime, keep_running
from dray.metadata import keys
from dray.metadata.contract import (
    ABSENT,
    Ambiguous,
    Delete,
    MetadataError,
    MetadataStore,
    Put,
    Session,
    StoredValue,
)
from dray.metadata.values import FROM_KEY, NOT_IF_NONE, HexUuid, JsonCodec, UnreadableValue
from dray.metadata.watching import Follower

# --- a broker as the others see it, and the value it is registered with

BROKER_FORMAT: Final = 1

_NONE: Final = UUID(int=0)


class AdvertisedListener(NamedTuple):
    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Broker:
    broker_id: Annotated[int, FROM_KEY]
    listeners: tuple[AdvertisedListener, ...]
    zone: str | None = None
    rack: str | None = None
    started_ms: int = 0
    build: str = ""
    machine: str = ""  # with the process id: lets a restart on the same machine see that it died
    process: int = 0
    incarnation: HexUuid = _NONE  # one per registration: tells our own value from a namesake's
    http: Annotated[str | None, NOT_IF_NONE] = None  # where its health and numbers are, as HOST:PORT
    reads: Annotated[int | None, NOT_IF_NONE] = None  # the highest level of a cluster that it reads

    @property
    def host(self) -> str:
        return self.listeners[0].host

    @property
    def port(self) -> int:
        return self.listeners[0].port

    def at(self, listener: str) -> AdvertisedListener:
        """The address of this broker for clients of that listener; its first listener if it has none such."""
        return next((known for known in self.listeners if known.name == listener), self.listeners[0])


_CODEC: Final = JsonCodec(Broker, BROKER_FORMAT)


def encode_broker(broker: Broker) -> bytes:
    return _CODEC.encode(broker)


def decode_broker(broker_id: int, value: bytes) -> Broker:
    return _CODEC.decode(f"broker {broker_id}", value, broker_id=broker_id)


# --- the registered brokers

_log = structlog.get_logger(__name__)

AUTOMATIC: Final = -1  # as a broker id: the lowest that is free

_PAUSE: Final = 0.2
_REMEMBERED: Final = 64


class BrokerIdTaken(Exception):
    """Another live broker has this id; the text is one line for the operator."""


class Membership:
    def __init__(
        self,
        store: MetadataStore,
        runtime: Runtime,
        broker: Broker,
        *,
        session_ttl: float = 10.0,
        reread_interval: float = 5.0,
        is_dead: Callable[[Broker], bool] = lambda _: False,
    ) -> None:
        """`broker` is this one, its id given or `AUTOMATIC`. `is_dead` says of a namesake's registration
        that its process is certainly gone (same machine, no such process)."""
        self._store = store
        self._runtime = runtime
        self._me = broker
        self._is_automatic = broker.broker_id == AUTOMATIC
        # Those that this process has registered with, or may have: without those of refused attempts.
        self._incarnations: deque[UUID] = deque(maxlen=_REMEMBERED)
        self._listeners: list[Callable[[int], None]] = []
        self._ttl = session_ttl
        self._is_dead = is_dead
        self._session: Session | None = None
        self._others: dict[int, Broker] = {}
        self._known: tuple[Broker, ...] = (broker,)
        self._keeping: KeptTask | None = None
        self._follower = Follower(
            store,
            runtime,
            keys.CLUSTER_DOMAIN,
            keys.BROKERS,
            read_all=self._read_all,
            read_key=lambda _: self._read_all(),
            interval=reread_interval,
        )

    @property
    def me(self) -> Broker:
        return self._me

    @property
    def is_registered(self) -> bool:
        """Whether the others can know of this broker, as far as it can tell: not when its session is over."""
        return self._session is not None and not self._session.ended

    def brokers(self) -> Sequence[Broker]:
        """The live brokers by id, as far as known: this one is always among them."""
        return self._known

    def find(self, broker_id: int) -> Broker | None:
        return next((broker for broker in self._known if broker.broker_id == broker_id), None)

    def listen(self, renumbered: Callable[[int], None]) -> None:
        """`renumbered` is called with this broker's id whenever it has become another one."""
        self._listeners.append(renumbered)

    async def start(self) -> None:
        """Registered when this returns. Raises `BrokerIdTaken`, or the store's errors."""
        self._me = dataclasses.replace(self._me, started_ms=self._runtime.wall_ms())
        self._session = await self._register()
        await self._read_all()
        self._follower.start()
        self._keeping = keep_running(self._runtime, "keep this broker registered", self._keep)

    async def stop(self) -> None:
        if self._keeping is not None:
            await self._keeping.stop()
            self._keeping = None
        await self._follower.stop()
        if self._session is not None:
            session, self._session = self._session, None
            with suppress(MetadataError):  # it ends by itself, a little later
                await session.close()

    # --- registering

    async def _register(self) -> Session:
        session = await self._store.session(keys.CLUSTER_DOMAIN, self._ttl)
        try:
            if not self._is_automatic:
                await self._take(session)
            elif self._me.broker_id == AUTOMATIC or not await self._retake(session):
                await self._take_lowest(session)
        except BaseException:
            with suppress(MetadataError):
                await session.close()
            raise
        return session

    async def _take_lowest(self, session: Session) -> None:
        """A dead one's id is free: a broker that was killed comes back under the id it had."""
        while True:
            taken = set()
            for record in await self._scan():
                broker_id = keys.broker_of(record.key)
                if broker_id is not None and not await self._removed(broker_id, record):
                    taken.add(broker_id)
            broker_id = next(number for number in range(len(taken) + 1) if number not in taken)
            if await self._put(dataclasses.replace(self._me, broker_id=broker_id), session):
                return

    async def _retake(self, session: Session) -> bool:
        """The id that this broker had, unless another has it now."""
        while not await self._put(self._me, session):
            await self._store.barrier(keys.CLUSTER_DOMAIN)
            record = await self._store.get(keys.CLUSTER_DOMAIN, keys.broker(self._me.broker_id))
            if record is not None and not await self._removed(self._me.broker_id, record):
                return False
        return True

    async def _removed(self, broker_id: int, record: StoredValue) -> bool:
        """Whether a registration has no owner: ours from before our session ended, or a dead process's. One
        that cannot be read has an owner."""
        try:
            registered = decode_broker(broker_id, record.value)
        except UnreadableValue:
            return False
        if registered.incarnation not in self._incarnations and not self._is_dead(registered):
            return False
        await self._store.write(keys.CLUSTER_DOMAIN, [Delete(record.key, record.version)])
        return True

    async def _take(self, session: Session) -> None:
        """Twice the time to live: a namesake that is gone is certainly unlisted by then."""
        deadline = self._runtime.monotonic() + 2 * self._ttl
        while not await self._put(self._me, session):
            key = keys.broker(self._me.broker_id)
            record = await self._store.get(keys.CLUSTER_DOMAIN, key)
            if record is None or await self._removed(self._me.broker_id, record):
                continue
            if self._runtime.monotonic() >= deadline:
                raise BrokerIdTaken(
                    f"broker id {self._me.broker_id} is taken by {_described(self._me.broker_id, record)}: "
                    "give this one another id, or stop that one"
                )
            await self._runtime.sleep(min(_PAUSE, self._ttl))

    async def _put(self, broker: Broker, session: Session) -> bool:
        """Put if absent. An unclear reply is settled by reading: the incarnation tells whose it is."""
        broker = dataclasses.replace(broker, incarnation=self._runtime.uuid())
        key = keys.broker(broker.broker_id)
        put = Put(key, encode_broker(broker), ABSENT, session)
        try:
            [outcome] = await self._store.write(keys.CLUSTER_DOMAIN, [put])
            applied = outcome.applied
        except Ambiguous:
            self._incarnations.append(broker.incarnation)  # it may yet arrive
            await self._store.barrier(keys.CLUSTER_DOMAIN)
            record = await self._store.get(keys.CLUSTER_DOMAIN, key)
            applied = record is not None and record.value == put.value
        if applied:
            self._incarnations.append(broker.incarnation)
            self._me = broker
        return applied

    async def _keep(self) -> None:
        say = _log.warning  # once, until it is registered
        while True:
            if self._session is not None:
                await self._session.wait_ended()
                _log.warning("this broker's session ended; it registers again", broker=self._me.broker_id)
                self._session = None
            before = self._me.broker_id
            try:
                self._session = await self._register()
            except BrokerIdTaken as error:
                _log.error("this broker cannot be listed", error=str(error))
            except MetadataError as error:
                say("this broker is not registered yet", error=str(error))
                say = _log.debug
            if self._session is None:
                await self._runtime.sleep(_PAUSE)
            else:
                say = _log.warning
                _log.info("this broker is registered again", broker=self._me.broker_id)
                await self._announce(before)

    async def _announce(self, before: int) -> None:
        """All that this process says of the brokers, and of itself, must agree with its registration."""
        if self._me.broker_id != before:
            _log.warning("this broker took another id", broker=self._me.broker_id, given_away=before)
            for renumbered in self._listeners:
                renumbered(self._me.broker_id)
        try:
            await self._read_all()
        except MetadataError as error:
            _log.warning("the brokers are read again later", error=str(error))

    # --- knowing the others

    async def _scan(self) -> list[StoredValue]:
        return await self._store.scan(keys.CLUSTER_DOMAIN, keys.BROKERS, keys.prefix_end(keys.BROKERS))

    async def _read_all(self) -> None:
        others: dict[int, Broker] = {}
        for record in await self._scan():
            broker_id = keys.broker_of(record.key)
            if broker_id is None or broker_id == self._me.broker_id:
                continue
            try:
                others[broker_id] = decode_broker(broker_id, record.value)
            except UnreadableValue as error:
                _log.error("a broker is left out", broker=broker_id, error=str(error))
        others[self._me.broker_id] = self._me
        self._known = tuple(others[broker_id] for broker_id in sorted(others))


def _described(broker_id: int, record: StoredValue) -> str:
    try:
        namesake = decode_broker(broker_id, record.value)
    except UnreadableValue as error:
        return f"another broker ({error})"
    return f"the broker at {namesake.host}:{namesake.port}"
