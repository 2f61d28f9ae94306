"""Opens the metadata store of an engine. Engines are imported when they are asked for: most processes need
one of them, and some cost a second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dray.base.runtime import Runtime
from dray.metadata.contract import MetadataStore
from dray.metadata.servers import ServersSettings
from dray.metadata.sqlite.schema import no_matter


@dataclass(frozen=True, slots=True)
class SqliteFile:
    path: Path
    on_damage: Callable[[str], None] = no_matter
    """Told of a file that turns out to be damaged after it was opened."""


class InMemory:
    """Forgets everything when it is closed."""


async def open_store(engine: SqliteFile | InMemory | ServersSettings, runtime: Runtime) -> MetadataStore:
    """A store that is ready. A `MetadataError` or an `OSError` says why there is none."""
    if isinstance(engine, InMemory):
        from dray.metadata.memory import MemoryStore

        return MemoryStore(runtime)
    if isinstance(engine, SqliteFile):
        from dray.metadata.sqlite import SqliteStore

        engine.path.parent.mkdir(parents=True, exist_ok=True)
        sqlite = SqliteStore(engine.path, runtime, on_damage=engine.on_damage)
        await sqlite.open()
        return sqlite
    return await engine.opened(runtime)
