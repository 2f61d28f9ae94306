"""The stores of other systems: where they are, and how they are opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dray.log.foreign_segments import ForeignStore
from dray.objects.read_only import open_read_only
from dray.records import uninitialised
from dray.runtime import Runtime


@dataclass(frozen=True, slots=True)
class ForeignAddress:
    """A store as the config names it. It can travel to a worker, with its secrets in no setting and no
    line."""

    url: str
    options: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    keys: Mapping[str, bytes] = field(default_factory=dict, repr=False)


async def open_foreign_stores(
    addresses: Mapping[str, ForeignAddress], runtime: Runtime
) -> dict[str, ForeignStore]:
    """Raises `ValueError` with one line. A store is first asked when it is first read."""
    opened: dict[str, ForeignStore] = {}
    for name, address in addresses.items():
        try:
            objects = await open_read_only(
                address.url, address.options, runtime, address.secrets, allocate=uninitialised
            )
        except ValueError as error:
            raise ValueError(f"foreign.stores {name}: {error}") from error
        opened[name] = ForeignStore(objects, address.keys)
    return opened
