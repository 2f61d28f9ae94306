"""Keeps this process's wall clock compared with others, and answers with it only while it is believed.

Each process of a cluster, broker or compactor, stores its wall time in a key of its own every `beat_seconds`,
and reads those of the others; `clock_judge` says what follows. A beat needs no session: one that does not
change any more counts for nothing after a while, and is then deleted by any process that sees it.

A beat also says which level of the cluster its process reads, and which it writes (`levels.py`).

While the clock is doubted nothing expires here, and everything else goes on: reading and writing need no wall
clock. A doubt is logged when it begins and when it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

import structlog

from dray.base.runtime import KeptTask, Runtime, keep_running
from dray.broker.cluster.clock_judge import GONE_BEATS, ClockBeat, ClockJudge, ClockVerdict
from dray.broker.cluster.levels import NEWEST
from dray.metadata import keys
from dray.metadata.contract import Delete, MetadataError, MetadataStore, Put, StoredValue
from dray.metadata.values import NOT_IF_NONE, JsonCodec, UnreadableValue

_log = structlog.get_logger(__name__)

BEAT_FORMAT: Final = 1

COMPACTOR: Final = "compactor"
"""The role of one."""
MIGRATOR: Final = "migrator"
"""The role of one."""

_TASK: Final = "compare clocks"
DEFAULT_TOLERANCE: Final = 300.0

_LONGEST_BEAT: Final = 30.0
_FORGOTTEN_BEATS: Final = 2 * GONE_BEATS
_SETTLING_ROUNDS: Final = 4 * (GONE_BEATS + 1)  # of a quarter of a beat
_FIRST_LOOK: Final = ""  # among the roles
_REMEMBERED_SECONDS: Final = 1.0
_REMEMBERED_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class ProcessDescription:
    """A process, described for those who look at the cluster."""

    role: str
    build: str
    http: str | None = None
    """The address of its health and numbers, as HOST:PORT; None: it has none."""


@dataclass(frozen=True, slots=True)
class StoredBeat:
    machine: str
    wall_ms: int
    stepped: bool
    process: Annotated[ProcessDescription | None, NOT_IF_NONE] = None
    reads: Annotated[int | None, NOT_IF_NONE] = None  # the highest level that it reads
    writes: Annotated[int | None, NOT_IF_NONE] = None  # the highest whose formats it writes now


_CODEC: Final = JsonCodec(StoredBeat, BEAT_FORMAT)


def encode_beat(beat: StoredBeat) -> bytes:
    return _CODEC.encode(beat)


def decode_beat(value: bytes) -> StoredBeat:
    return _CODEC.decode("the time of a process", value)


class _Remembered(NamedTuple):
    until: float
    offset_ms: float


class ClockGuard:
    """An `ExpiryClock`: `start` and `stop` it. A process that cannot wait for its first looks awaits
    `until_certain`.

    `machine` names whose clock this is. `read_store_clock` asks the object store for the time, and raises
    whatever it likes; None where the store has no clock of its own (local files, memory). `process` goes into
    the beats: a compactor is registered nowhere else. `reads` is the highest level that this process reads;
    `writes` tells which it writes now, and is None where it writes nothing that a level gates. `on_looked` is
    called after each look.
    """

    def __init__(
        self,
        store: MetadataStore,
        runtime: Runtime,
        *,
        machine: str = "",
        tolerance: float = DEFAULT_TOLERANCE,
        read_store_clock: Callable[[], Awaitable[int]] | None = None,
        process: ProcessDescription | None = None,
        reads: int | None = NEWEST,
        writes: Callable[[], int] | None = None,
        on_looked: Callable[[], None] | None = None,
    ) -> None:
        self._reads = reads
        self._writes = writes
        self._on_looked = on_looked
        self.beat_seconds = min(_LONGEST_BEAT, tolerance / 8)
        self._store = store
        self._runtime = runtime
        self._machine = machine
        self._description = process
        self._read_store_clock = read_store_clock
        self._judge = ClockJudge(
            machine, tolerance, self.beat_seconds, has_store_clock=read_store_clock is not None
        )
        self._process = runtime.uuid().hex
        self._remembered: _Remembered | None = None
        self._doubt: ClockVerdict | None = None
        self._peers: frozenset[str] = frozenset()
        self._seen: dict[str, float] = {}  # by role: when one was seen last
        self._looking = asyncio.Lock()
        self._task: KeptTask | None = None

    # --- what others ask

    def now_ms(self) -> int | None:
        wall_ms, now = self._runtime.wall_ms(), self._runtime.monotonic()
        remembered = self._remembered
        if (
            remembered is not None
            and now < remembered.until
            and abs(wall_ms - now * 1000 - remembered.offset_ms) <= _REMEMBERED_MS
        ):
            return wall_ms
        return wall_ms if self._judge_now(now, wall_ms).believed else None

    def likely_ms(self) -> int:
        wall_ms = self._runtime.wall_ms()
        verdict = self._judge_now(self._runtime.monotonic(), wall_ms)
        return wall_ms if verdict.believed else wall_ms - int(verdict.ahead_ms)

    def doubt(self) -> str | None:
        """Why nothing expires now; None where all is well."""
        verdict = self._judge_now(self._runtime.monotonic(), self._runtime.wall_ms())
        return None if verdict.believed else verdict.reason

    def _judge_now(self, now: float, wall_ms: int) -> ClockVerdict:
        verdict = self._judge.judge(now, wall_ms)
        if verdict.believed:
            self._remembered = _Remembered(now + _REMEMBERED_SECONDS, wall_ms - now * 1000)
        else:
            self._remembered = None
        if self._judge.settled:
            self._tell(verdict)
        return verdict

    def _tell(self, verdict: ClockVerdict) -> None:
        if verdict.believed is (self._doubt is None):
            return
        self._doubt = None if verdict.believed else verdict
        if verdict.believed:
            _log.info("this machine's clock is believed again: things expire")
        else:
            _log.error(
                "this machine's clock is doubted, and nothing expires: set it right", reason=verdict.reason
            )

    # --- others of its kind

    @property
    def process(self) -> str:
        """The name of this process among the beats."""
        return self._process

    def peers(self) -> frozenset[str]:
        """The other processes of the same role that go on, as they were last seen; none before a look."""
        return self._peers

    def unseen_seconds(self, role: str) -> float:
        """For how long none of that role was seen to go on; at most since the first look."""
        now = self._runtime.monotonic()
        return now - self._seen.get(role, self._seen.get(_FIRST_LOOK, now))

    # --- comparing

    def start(self) -> None:
        self._task = keep_running(self._runtime, _TASK, self._run)

    async def stop(self) -> None:
        if self._task is not None:
            await self._task.stop()
            self._task = None
            with suppress(MetadataError):  # others forget it by themselves, a little later
                await self._store.write(keys.CLUSTER_DOMAIN, [Delete(keys.clock(self._process))])

    async def until_certain(self) -> str | None:
        """Compare until it is known what to believe: `doubt`, once it is certain. Others that are dead are
        waited for until their silence shows it. Raises the store's errors."""
        for _ in range(_SETTLING_ROUNDS):
            await self._look()
            if self._judge_now(self._runtime.monotonic(), self._runtime.wall_ms()).certain:
                break
            soon = min(1.0, self.beat_seconds / 4)
            await self._runtime.sleep(self.beat_seconds / 4 if self._judge.settled else soon)
        return self.doubt()

    async def _run(self) -> None:
        is_told = False
        while True:
            try:
                await self._beat()
                await self._look()
                is_told = False
            except MetadataError as error:
                tell = _log.debug if is_told else _log.warning
                tell("clocks are compared later", error=str(error))
                is_told = True
            except Exception as error:  # of any kind: without evidence nothing expires, and that is logged
                self._runtime.background.report(_TASK, error)
            self.now_ms()
            soon = min(1.0, self.beat_seconds)
            await self._runtime.sleep(self.beat_seconds if self._judge.settled else soon)

    async def _beat(self) -> None:
        beat = StoredBeat(
            self._machine,
            self._runtime.wall_ms(),
            self._judge.has_stepped,
            self._description,
            self._reads,
            None if self._writes is None else self._writes(),
        )
        await self._store.write(keys.CLUSTER_DOMAIN, [Put(keys.clock(self._process), encode_beat(beat))])

    async def _look(self) -> None:
        async with self._looking:  # one after another: what is read later must not be taken in earlier
            await self._look_alone()

    async def _look_alone(self) -> None:
        await self._probe()
        began = self._runtime.monotonic()
        await self._store.barrier(keys.CLUSTER_DOMAIN)
        records = await self._store.scan(keys.CLUSTER_DOMAIN, keys.CLOCKS, keys.prefix_end(keys.CLOCKS))
        ended = self._runtime.monotonic()
        others = [record for record in records if record.key != keys.clock(self._process)]
        self._judge.looked(began, ended, [_read(record) for record in others])
        going_on = [record for record in others if not self._is_gone(record, ended)]
        role = None if self._description is None else self._description.role
        roles = {keys.process_of_clock(record.key): _role(record) for record in going_on}
        self._peers = frozenset(process for process, its in roles.items() if role and its == role)
        self._seen.setdefault(_FIRST_LOOK, ended)
        self._seen.update((its, ended) for its in roles.values() if its)
        if self._on_looked is not None:
            self._on_looked()
        for record in others:
            seen = self._judge.silent_since(keys.process_of_clock(record.key))
            if seen is not None and ended - seen > _FORGOTTEN_BEATS * self.beat_seconds:
                await self._store.write(keys.CLUSTER_DOMAIN, [Delete(record.key, record.version)])

    def _is_gone(self, record: StoredValue, now: float) -> bool:
        seen = self._judge.silent_since(keys.process_of_clock(record.key))
        return seen is not None and now - seen > GONE_BEATS * self.beat_seconds

    async def _probe(self) -> None:
        if self._read_store_clock is None:
            return
        began = self._runtime.monotonic()
        try:
            async with asyncio.timeout(self.beat_seconds):
                wall_ms = await self._read_store_clock()
        except Exception as error:  # the store's: without its time, nothing expires, and that is logged
            _log.info("the object store's clock was not read", error=repr(error))
            return
        self._judge.probed(began, self._runtime.monotonic(), wall_ms)


def _read(record: StoredValue) -> ClockBeat:
    process = keys.process_of_clock(record.key)
    try:
        beat = decode_beat(record.value)
    except UnreadableValue as error:
        _log.error("the time of a process is left out", process=process, error=str(error))
        return ClockBeat(process, "", record.version, None)
    return ClockBeat(process, beat.machine, record.version, beat.wall_ms, beat.stepped)


def _role(record: StoredValue) -> str | None:
    """One that cannot be read has none: it is of another build, and shares nothing."""
    try:
        process = decode_beat(record.value).process
    except UnreadableValue:
        return None
    return None if process is None else process.role
