"""`SqliteStore`: the contract on one SQLite file, for all processes of one machine.

A thread writes (`writer`: group commit under a lock between processes, `lock`), one copies what was
written into the file now and then (`checkpoints`), one answers point reads and one scans (`reader`),
and one listens for other processes while somebody watches (`changes`). The event
loop only ever queues and delivers.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dray.base.runtime import Runtime, keep_running
from dray.base.runtime.logger import get_logger
from dray.base.runtime.workers import Worker, WorkItem
from dray.metadata.contract import (
    KEY_END,
    Change,
    DomainOutcome,
    DomainWrite,
    Limits,
    MetadataError,
    Operation,
    Outcome,
    SessionEnded,
    StoredValue,
    Unavailable,
    as_outcome,
    check_domain,
    check_limit,
    check_ttl,
    check_write,
)
from dray.metadata.sessions import KeptSession, SendTime, session_identity
from dray.metadata.sqlite.changes import ForeignChanges
from dray.metadata.sqlite.checkpoints import Checkpointer, CheckpointJob
from dray.metadata.sqlite.lock import WriterLock
from dray.metadata.sqlite.schema import DamagedFile, check_whole, connect_reader, failure, no_matter
from dray.metadata.sqlite.writer import (
    ANY_EXPIRED,
    AnyWrite,
    Changed,
    GroupWriter,
    WriteJob,
    open_session,
    reap_sessions,
    remove_session,
    renew_session,
)
from dray.metadata.watching import WatchHub

_COLUMNS = "SELECT key, value, version FROM records"
# Twice the time to live: the clock is read before the statement sees the file, and a session that was renewed
# in between expires later than a time to live from then. Writers judge under the lock, and need no such room.
_VISIBLE = (
    "(session IS NULL OR session IN (SELECT id FROM sessions WHERE expires > ?1 AND expires <= ?1 + 2 * ttl))"
)

GET = f"{_COLUMNS} WHERE domain = ?2 AND key = ?3 AND {_VISIBLE}"
GREATEST = f"""
    {_COLUMNS} WHERE domain = ?2 AND key >= ?3 AND key <= ?4 AND {_VISIBLE} ORDER BY key DESC LIMIT 1
"""
LEAST = f"""
    {_COLUMNS} WHERE domain = ?2 AND key >= ?3 AND key < ?4 AND {_VISIBLE} ORDER BY key LIMIT 1
"""
SCAN = f"{_COLUMNS} WHERE domain = ?2 AND key >= ?3 AND key < ?4 AND {_VISIBLE} ORDER BY key LIMIT ?5"


class ReadJob(WorkItem[list[Any]]):
    """One statement; its first parameter is the time, filled in when it runs."""

    __slots__ = ("arguments", "statement")

    def __init__(self, statement: str, *arguments: object) -> None:
        super().__init__()
        self.statement = statement
        self.arguments = arguments


class SqliteReader:
    """Runs in a reader's thread. In WAL mode a reader waits for no writer, and sees all that was committed
    before its statement began, by whichever process.

    Reads run in threads although a cached one takes only some ten microseconds: the one in a thousand that
    must fetch pages from the disk would stop the whole broker. Whatever queued up meanwhile shares the hop.
    Scans have a thread of their own, so that a long one holds up no `get`.
    """

    def __init__(self, path: Path, clock: Callable[[], float], busy_timeout: float) -> None:
        self._path = path
        self._clock = clock
        self._busy_timeout = busy_timeout
        self._connection: sqlite3.Connection | None = None

    def run(self, jobs: Sequence[ReadJob]) -> None:
        for job in jobs:
            try:
                if self._connection is None:
                    self._connection = connect_reader(self._path, self._busy_timeout)
                cursor = self._connection.execute(job.statement, (self._clock(), *job.arguments))
                job.result = cursor.fetchall()
            except sqlite3.Error as error:
                job.error = failure(self._path, error)
                self.close()
            except (ValueError, OverflowError) as error:  # an argument that SQLite cannot hold
                job.error = error

    def close(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None


def records_of(rows: list[tuple[str, bytes, int]]) -> list[StoredValue]:
    return [StoredValue(*row) for row in rows]


_log = get_logger(__name__)

LIMITS: Final = Limits(operations=10_000, value_bytes=16 << 20)


@dataclass(frozen=True, slots=True)
class SqliteSettings:
    watch_interval: float = 0.02
    """Seconds between looks for what other processes wrote, where none of them rings."""

    quiet_interval: float = 0.05
    """The same, once there was no write for some looks."""

    upkeep_interval: float = 0.5
    """Seconds between looks for sessions that ran out and writes that waited too long."""

    lock_timeout: float = 10.0
    """Seconds a write waits for its turn before it is `Unavailable` (a writer hangs)."""

    busy_timeout: float = 5.0
    """Seconds to wait for what SQLite locks by itself (recovery, a checkpoint as the last connection
    closes) and for strangers such as its command line: our own writers queue elsewhere."""

    checkpoint_pages: int = 4000
    """Pages in SQLite's log, about, before they are copied into the file."""


class SqliteStore:
    def __init__(
        self,
        path: str | Path,
        runtime: Runtime,
        settings: SqliteSettings | None = None,
        on_damage: Callable[[str], None] = no_matter,
    ) -> None:
        """`on_damage` is told of a file that turns out to be damaged after it was opened."""
        self._on_damage = on_damage
        self._path = Path(path).resolve()  # one file has one lock, whatever links lead to it
        self._runtime = runtime
        self._settings = settings or SqliteSettings()
        self._identity = runtime.random.getrandbits(62)
        self._hub = WatchHub()
        self._foreign = ForeignChanges(
            self._path,
            identity=self._identity,
            interval=self._settings.watch_interval,
            quiet_interval=self._settings.quiet_interval,
            busy_timeout=self._settings.busy_timeout,
            hub=self._hub,
        )
        self._sessions: list[KeptSession] = []
        self._open = False

    async def open(self) -> None:
        """Create or check the file. `UnusableFile` when it is not ours, too new or damaged."""
        await self._runtime.in_thread(check_whole, self._path, self._settings.busy_timeout)
        clock = self._runtime.monotonic
        lock = WriterLock(self._path)
        self._group_writer = GroupWriter(
            self._path,
            identity=self._identity,
            clock=clock,
            busy_timeout=self._settings.busy_timeout,
            checkpoint_pages=self._settings.checkpoint_pages,
            published=self._publish,
        )

        def finish_writing() -> None:
            self._group_writer.finish()
            lock.close()

        self._writer: Worker[AnyWrite] = Worker(
            "metadata-writer", clock, self._group_writer.run, guard=lock.held, finish=finish_writing
        )
        checkpointer = Checkpointer(self._path, WriterLock(self._path), self._settings.busy_timeout)
        self._checkpointer: Worker[CheckpointJob] = Worker(
            "metadata-checkpointer", clock, checkpointer.run, finish=checkpointer.finish
        )
        self._readers: list[Worker[ReadJob]] = []
        for name in ("metadata-reader", "metadata-scanner"):
            reader = SqliteReader(self._path, clock, self._settings.busy_timeout)
            self._readers.append(Worker(name, clock, reader.run, finish=reader.close))
        self._point_reader, self._scanner = self._readers
        self._open = True
        self._upkeep_task = keep_running(self._runtime, "metadata upkeep", self._upkeep)
        try:
            await self._submit(reap_sessions())
        except BaseException:
            await self.abandon()
            raise

    async def close(self) -> None:
        """End this store's sessions, finish what is queued, let go of the file."""
        if self._open:
            for session in self._sessions:
                try:
                    await session.close()
                except MetadataError as error:
                    _log.warning("a session is left to run out", path=str(self._path), error=str(error))
        await self.abandon()

    async def abandon(self) -> None:
        """Close, but leave the sessions to run out by themselves, as those of a dead process do."""
        for session in self._sessions:
            session.abandon()
        if not self._open:
            return
        self._open = False
        self._hub.close()
        self._foreign.close()
        self._upkeep_task.cancel()
        patience = self._settings.lock_timeout
        for reader in self._readers:
            await reader.close(patience)
        await self._checkpointer.close(patience)
        if not await self._writer.close(patience):
            self._writer.withdraw(float("inf"), self._waited_too_long)

    @property
    def limits(self) -> Limits:
        return LIMITS

    async def get(self, domain: int, key: str) -> StoredValue | None:
        return await self._one(GET, domain, key)

    async def floor(self, domain: int, key: str, prefix: str) -> StoredValue | None:
        return await self._one(GREATEST, domain, prefix, min(key, prefix + KEY_END))

    async def ceiling(self, domain: int, key: str, prefix: str) -> StoredValue | None:
        return await self._one(LEAST, domain, max(key, prefix), prefix + KEY_END)

    async def scan(self, domain: int, start: str, end: str, limit: int | None = None) -> list[StoredValue]:
        check_limit(limit)
        job = ReadJob(SCAN, domain, start, end, -1 if limit is None else limit)
        return records_of(await self._read(self._scanner, domain, job))

    async def write(self, domain: int, operations: Sequence[Operation]) -> list[Outcome]:
        """A caller that is cancelled does not know what became of its write."""
        session = check_write(domain, operations, LIMITS)
        identity = None if session is None else session_identity(domain, session)
        if session is not None and session.ended:
            raise SessionEnded(f"session {identity} is over")
        outcomes: list[Outcome] = await self._submit(WriteJob(domain, operations, identity))
        return outcomes

    async def write_domains(self, writes: Sequence[DomainWrite]) -> list[DomainOutcome]:
        """All of them go to the writer's thread at once, and so into one transaction; there, each is judged
        by its own expectations."""
        jobs: list[WriteJob] = []
        for domain, operations in writes:
            if check_write(domain, operations, LIMITS) is not None:
                raise ValueError("puts of a session are written to one domain")
            jobs.append(WriteJob(domain, operations, None, is_known=True))
        if not self._open:
            return [Unavailable(f"{self._path} is not open") for _ in jobs]
        self._writer.submit_all(jobs)
        found: list[DomainOutcome] = []
        for job in jobs:
            try:
                found.append(await job.future)
            except Exception as error:
                if len(jobs) == 1 and not isinstance(error, MetadataError):
                    raise
                found.append(as_outcome(error))
        return found

    async def barrier(self, domain: int) -> None:
        """Nothing to wait for: every read sees all that was committed before it."""
        check_domain(domain)
        self._check_open()

    async def watch(self, domain: int, endings: tuple[str, ...] = ()) -> AsyncGenerator[Change, None]:
        check_domain(domain)
        self._check_open()
        await self._foreign.enter()
        try:
            async with aclosing(self._hub.watch_many(domain, endings)) as news:
                async for changes in news:
                    for change in changes:
                        yield change
        finally:
            self._foreign.leave()

    async def mark(self, domain: int, name: str) -> None:
        """Writes of this process its watchers have heard of by the time that they are acknowledged."""
        check_domain(domain)
        self._check_open()
        await self._foreign.look()
        self._hub.publish(domain, [name])

    async def session(self, domain: int, ttl: float) -> KeptSession:
        check_domain(domain)
        check_ttl(ttl)
        identity = self._runtime.random.getrandbits(62)
        sent = SendTime.now(self._runtime)
        await self._submit(open_session(identity, domain, ttl))

        async def renew() -> bool:
            return bool(await self._submit(renew_session(identity)))

        async def remove() -> None:
            await self._submit(remove_session(identity))

        session = KeptSession(
            self._runtime, domain=domain, identity=identity, ttl=ttl, sent=sent, renew=renew, remove=remove
        )
        self._sessions = [*(kept for kept in self._sessions if not kept.ended), session]
        return session

    async def _one(self, statement: str, domain: int, *arguments: str) -> StoredValue | None:
        rows = await self._read(self._point_reader, domain, ReadJob(statement, domain, *arguments))
        return StoredValue(*rows[0]) if rows else None

    async def _read(self, reader: Worker[ReadJob], domain: int, job: ReadJob) -> list[Any]:
        check_domain(domain)
        self._check_open()
        try:
            rows: list[Any] = await reader.submit(job)
        except DamagedFile as error:
            self._on_damage(str(error))
            raise
        return rows

    async def _submit(self, job: AnyWrite) -> Any:
        self._check_open()
        try:
            return await self._writer.submit(job)
        except DamagedFile as error:
            self._on_damage(str(error))
            raise

    def _check_open(self) -> None:
        if not self._open:
            raise Unavailable(f"{self._path} is not open")

    def _publish(self, changed: Changed) -> None:
        for domain, keys in changed.items():
            self._hub.publish(domain, keys)
        if self._open and self._group_writer.is_checkpoint_due():
            self._checkpointer.submit(CheckpointJob())

    async def _upkeep(self) -> None:
        """Any process removes what any process left behind, so that watchers hear of it."""
        while True:
            await self._runtime.sleep(self._settings.upkeep_interval)
            before = self._runtime.monotonic() - self._settings.lock_timeout
            self._writer.withdraw(before, self._waited_too_long)
            try:
                [(any_expired,)] = await self._point_reader.submit(ReadJob(ANY_EXPIRED))
                if any_expired:
                    await self._submit(reap_sessions())
            except MetadataError:
                continue  # the next read or write reports it

    def _waited_too_long(self) -> Unavailable:
        return Unavailable(f"{self._path}: no turn to write within {self._settings.lock_timeout} s")
