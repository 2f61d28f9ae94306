"""The work of a Python worker of Spark: the units of one task, from the object store and back to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from dray.base.runtime import RuntimeInPlace, SystemRuntime
from dray.kafka.records import uninitialised
from dray.log.entries import IndexEntry
from dray.log.jobs.values import WrittenFile
from dray.objects.contract import ObjectError
from dray.objects.factory import open_store
from dray.tables.compaction.model import Unit, UnitAnswer, UnitFailed, WrittenKeys
from dray.tables.compaction.writing.executor import write_unit
from dray.tables.compaction.writing.outside_rows import OutsideAddress

_THREADS: Final = 4
_TINY_BYTES: Final = 1 << 20
_TINY_AT_ONCE: Final = 4  # tiny units mostly wait for the object store; of others one fills the memory


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """How a worker opens the object store. It travels inside the function that Spark ships, so that its
    secrets are in no setting of Spark's and on no page of its UI."""

    url: str
    options: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    outside: OutsideAddress | None = None


def write_units(units: Sequence[Unit], store: StoreAddress) -> list[UnitAnswer]:
    """An answer for every unit, whatever becomes of it."""
    return asyncio.run(_write_units(units, store))


async def _write_units(units: Sequence[Unit], address: StoreAddress) -> list[UnitAnswer]:
    runtime = SystemRuntime(threads=_THREADS)
    try:
        store = await open_store(
            address.url, address.options, runtime, address.secrets, allocate=uninitialised
        )
        outside = None if address.outside is None else await address.outside.open(store, runtime)
    except (ObjectError, ValueError) as error:
        runtime.close()
        return [UnitFailed(unit.stream, unit.job, str(error), retriable=True) for unit in units]
    tiny = max(map(weight_of, units)) <= _TINY_BYTES
    slots = asyncio.Semaphore(_TINY_AT_ONCE if tiny else 1)
    computing = RuntimeInPlace() if tiny else runtime  # the store keeps its threads, in which it waits

    async def write(unit: Unit) -> UnitAnswer:
        async with slots:
            try:
                return await write_unit(unit, store, computing, outside)
            except Exception as error:  # it becomes this unit's answer, and the others of the task go on
                return UnitFailed(unit.stream, unit.job, f"{type(error).__name__}: {error}", retriable=True)

    try:
        return list(await asyncio.gather(*[write(unit) for unit in units]))
    finally:
        if outside is not None:
            await outside.close()
        await store.close()
        computing.close()
        runtime.close()


class EarlyAnswers:
    """The accumulator's way to add: in a worker answers are gathered, in the driver they are passed on as
    they come, and none is kept."""

    def __init__(self, deliver: Callable[[tuple[str, str]], None] | None = None) -> None:
        self._deliver = deliver

    def __reduce__(self) -> tuple[type[EarlyAnswers], tuple[()]]:
        return EarlyAnswers, ()

    def zero(self, _: object) -> list[tuple[str, str]]:
        return []

    def addInPlace(  # noqa: N802 - Spark's name
        self, gathered: list[tuple[str, str]], more: list[tuple[str, str]]
    ) -> list[tuple[str, str]]:
        if self._deliver is None:
            return gathered + more
        for answer in more:
            self._deliver(answer)
        return gathered


def to_row(answer: UnitAnswer) -> str:
    """As the row that travels back through Spark."""
    if isinstance(answer, WrittenFile):
        return json.dumps({"written": answer.to_json()})
    if isinstance(answer, WrittenKeys):
        return json.dumps({"keys": asdict(answer)})
    return json.dumps({"failed": asdict(answer)})


def from_row(row: str) -> UnitAnswer:
    fields: dict[str, Any] = json.loads(row)
    if "written" in fields:
        return WrittenFile.from_json(fields["written"])
    if "keys" in fields:
        return WrittenKeys(**fields["keys"])
    return UnitFailed(**fields["failed"])


def weight_of(unit: Unit) -> int:
    """About the bytes it has to read. Never nothing: an empty entry is work, too."""
    return sum(1 + IndexEntry.decode(entry).stored_bytes for entry in unit.entries)
