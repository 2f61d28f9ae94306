"""ACLs in the metadata store. The key is the binding, so creating one is putting a key that may be there, and
deleting one is deleting a key that may be gone; the value says only in which format it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final, TypeVar

import structlog

from dray.base.runtime import Runtime
from dray.broker.security.acls.decision import AclIndex, matching
from dray.broker.security.key_follower import KeyFollower, SecurityUnavailable
from dray.kafka.acls import AclBinding, AclFilter, AclOperation, AclResourceType, PatternType, Permission
from dray.metadata import keys
from dray.metadata.contract import ABSENT, Delete, MetadataError, MetadataStore, Operation, Put
from dray.metadata.update import update
from dray.metadata.values import UnreadableValue, seal_json, unseal_json

_log = structlog.get_logger(__name__)

ACL_FORMAT: Final = 1
_VALUE: Final = seal_json(ACL_FORMAT, {})
_READ_ONE_BY_ONE: Final = 50
_LOOKED_THROUGH_AT_ONCE: Final = 2_000

T = TypeVar("T")

Kind = TypeVar("Kind", AclResourceType, PatternType, AclOperation, Permission)


def _word(value: AclResourceType | PatternType | AclOperation | Permission) -> str:
    return value.name.lower().replace("_", "-")


def _value(kind: type[Kind], word: str) -> Kind | None:
    return next((value for value in kind if _word(value) == word), None)


def key_of(binding: AclBinding) -> str:
    return keys.acl(
        _word(binding.resource_type),
        _word(binding.pattern_type),
        binding.name,
        binding.principal,
        binding.host,
        _word(binding.operation),
        _word(binding.permission),
    )


def binding_of(key: str) -> AclBinding | None:
    """None for a key that a newer build made of something that this one does not know."""
    parts = keys.parts_of_acl(key)
    if parts is None:
        return None
    kind, pattern = _value(AclResourceType, parts[0]), _value(PatternType, parts[1])
    operation, permission = _value(AclOperation, parts[5]), _value(Permission, parts[6])
    if kind is None or pattern is None or operation is None or permission is None:
        return None
    return AclBinding(kind, pattern, parts[2], parts[3], parts[4], operation, permission)


class Acls:
    """`index` is what is known; every broker's is the store's within moments."""

    def __init__(self, store: MetadataStore, runtime: Runtime) -> None:
        self.index = AclIndex()
        self._store = store
        self._runtime = runtime
        self._followed = KeyFollower(store, runtime, keys.ACLS, learn=self._learn, forget=self._forget)

    async def start(self) -> None:
        await self._followed.start()

    async def stop(self) -> None:
        await self._followed.stop()

    async def create(self, bindings: Sequence[AclBinding]) -> None:
        """Create bindings; those that exist already stay. Raises `SecurityUnavailable`: some may have been
        created."""
        made = list(dict.fromkeys(map(key_of, bindings)))
        await self._write([Put(key, _VALUE, ABSENT) for key in made])
        await self._learn_of(made)

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[AclBinding]]:
        """Delete what the filters match; what each filter matched. Raises `SecurityUnavailable`: some may
        have been deleted."""
        try:
            await self._store.barrier(keys.CLUSTER_DOMAIN)
            await self._followed.read_all()
        except MetadataError as error:
            raise SecurityUnavailable(str(error)) from error

        def look(bindings: list[AclBinding]) -> tuple[list[list[AclBinding]], list[str]]:
            matched = [matching(bindings, wanted) for wanted in filters]
            return matched, [key_of(binding) for binding in dict.fromkeys(chain.from_iterable(matched))]

        matched, gone = await self.look_through(look, times=len(filters))
        versions = {key: self._followed.version_of(key) for key in gone}
        await self._write([Delete(key, version) for key, version in versions.items() if version is not None])
        await self._learn_of(gone)
        return matched

    async def look_through(self, work: Callable[[list[AclBinding]], T], times: int = 1) -> T:
        """The result of `work` on all bindings, in a thread if they are many: 100,000 take a second, and the
        event loop is everybody's. `times`: how often it goes through them."""
        known = self.index.bindings()
        if len(known) * times <= _LOOKED_THROUGH_AT_ONCE:
            return work(known)
        return await self._runtime.in_thread(work, known)

    async def _write(self, operations: Sequence[Operation]) -> None:
        step = min(self._store.limits.operations, 500)
        try:
            for at in range(0, len(operations), step):
                await self._write_some(operations[at : at + step])
        except MetadataError as error:
            raise SecurityUnavailable(str(error)) from error

    async def _write_some(self, operations: Sequence[Operation]) -> None:
        """Write some operations, again after an unclear reply. That does no harm: each expects the version
        that was read, or an absent key."""
        await update(self._runtime, lambda: self._store.write(keys.CLUSTER_DOMAIN, operations))

    async def _learn_of(self, changed: Sequence[str]) -> None:
        try:
            if len(changed) <= _READ_ONE_BY_ONE:
                await self._followed.read_keys(changed)
            else:
                await self._store.barrier(keys.CLUSTER_DOMAIN)
                await self._followed.read_all()
        except MetadataError as error:
            raise SecurityUnavailable(str(error)) from error

    # --- knowing

    def _learn(self, key: str, value: bytes) -> None:
        """A value that cannot be read may hold a condition that this build does not know. A DENY then counts
        without the condition, an ALLOW does not count."""
        binding = binding_of(key)
        if binding is None:
            _log.error("an ACL is not understood, and not used", key=key)
            return
        try:
            unseal_json("an ACL", value, ACL_FORMAT)
        except UnreadableValue as error:
            if binding.permission is Permission.ALLOW:
                self.index.remove(binding)
                self.index.add(_place_holder(key, binding))
            else:
                self.index.add(binding)
            _log.error("an ACL cannot be read: a DENY holds, an ALLOW does not", key=key, error=str(error))
            return
        self.index.remove(_place_holder(key, binding))
        self.index.add(binding)

    def _forget(self, key: str) -> None:
        binding = binding_of(key)
        if binding is not None:
            self.index.remove(binding)
            self.index.remove(_place_holder(key, binding))


def _place_holder(key: str, binding: AclBinding) -> AclBinding:
    """A binding that allows nothing to any principal. The resource still has an ACL, so `allow_if_no_acl`
    does not apply to it."""
    return binding._replace(principal=key, operation=AclOperation.UNKNOWN)
