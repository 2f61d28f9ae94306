"""What runs in a Python worker of Spark: the units of one task, from the object store and back to it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from dray.compaction.executor import write_unit
from dray.compaction.model import Unit, UnitAnswer, UnitFailed, WrittenKeys
from dray.compaction.spark.packing import weight_of
from dray.log.foreign_segments import ForeignSegments
from dray.log.foreign_stores import ForeignAddress, open_foreign_stores
from dray.log.written_file import WrittenFile
from dray.objects.contract import ObjectError
from dray.objects.factory import open_store
from dray.records import uninitialised
from dray.runtime import SystemRuntime

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
    foreign: Mapping[str, ForeignAddress] = field(default_factory=dict)  # stores of other systems, by name


def write_units(units: Sequence[Unit], store: StoreAddress) -> list[UnitAnswer]:
    """An answer for every unit, whatever becomes of it."""
    return asyncio.run(_write_units(units, store))


async def _write_units(units: Sequence[Unit], address: StoreAddress) -> list[UnitAnswer]:
    runtime = SystemRuntime(threads=_THREADS)
    try:
        store = await open_store(
            address.url, address.options, runtime, address.secrets, allocate=uninitialised
        )
        opened = await open_foreign_stores(address.foreign, runtime)
    except (ObjectError, ValueError) as error:
        runtime.close()
        return [UnitFailed(unit.stream, unit.job, str(error), retriable=True) for unit in units]
    foreign = ForeignSegments(store, runtime, opened)
    tiny = max(map(weight_of, units)) <= _TINY_BYTES
    slots = asyncio.Semaphore(_TINY_AT_ONCE if tiny else 1)

    async def write(unit: Unit) -> UnitAnswer:
        async with slots:
            try:
                return await write_unit(unit, store, runtime, foreign)
            except Exception as error:  # it becomes this unit's answer, and the others of the task go on
                return UnitFailed(unit.stream, unit.job, f"{type(error).__name__}: {error}", retriable=True)

    try:
        return list(await asyncio.gather(*[write(unit) for unit in units]))
    finally:
        for other in opened.values():
            await other.objects.close()
        await store.close()
        runtime.close()


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
