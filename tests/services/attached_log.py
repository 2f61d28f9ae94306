"""A log with what a process that moves topics makes on top of it."""

from __future__ import annotations

from collections.abc import Mapping

from dray.base.runtime import ExpiryClock, Runtime
from dray.log import Log, LogObserver, LogSettings
from dray.log.life.deletions import MayDelete, nothing_may_go
from dray.metadata.contract import MetadataStore
from dray.migration.entries.kind import ForeignEntries
from dray.migration.entries.segments import ForeignStore
from dray.migration.mirror.mirroring import StreamMirror
from dray.objects.contract import ObjectStore
from tests.services import room_settings

CACHE_BYTES = room_settings.CONFIG.foreign.cache_bytes


class AttachedLog(Log):
    def __init__(
        self,
        store: MetadataStore,
        objects: ObjectStore,
        runtime: Runtime,
        domains: int,
        settings: LogSettings,
        observer: LogObserver | None = None,
        *,
        may_delete: MayDelete = nothing_may_go,
        expiry: ExpiryClock | None = None,
        stores: Mapping[str, ForeignStore] | None = None,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        """`stores`: those of other systems, of whose segments `cache_bytes` are kept in memory."""
        self.entries = ForeignEntries(objects, runtime, stores or {}, cache_bytes)
        super().__init__(
            store,
            objects,
            runtime,
            domains,
            settings,
            observer,
            may_delete=may_delete,
            expiry=expiry,
            outside=self.entries,
        )
        self.mirror = StreamMirror(
            self._streams, objects, runtime, settings, self.entries.segments, self._retention, self._expiry
        )
