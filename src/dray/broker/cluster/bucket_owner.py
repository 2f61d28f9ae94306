"""The bucket's owner: an object at the root of the configured prefix that names its cluster.

Collectors delete what their metadata store does not need. Of another cluster's objects that is every one,
so a bucket has one owner. The cluster's record is made first and this object after it, if absent: a crash
between the two leaves a bucket that is still empty, which the next broker takes. Of two clusters that try at
once, the object store lets one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Annotated, Final
from zlib import crc32

import structlog
from pydantic import Field

from dray.broker.cluster.identity import ClusterInfo
from dray.metadata.values import NOT_IF_NONE, JsonCodec, UnreadableValue, ValueCorrupt
from dray.objects.contract import ObjectError, ObjectExists, ObjectMissing, ObjectStore, Unsupported

_log = structlog.get_logger(__name__)

OWNER: Final = "dray-cluster"
OWNER_FORMAT: Final = 1

_WHAT: Final = f"the bucket's owner ({OWNER})"
_LARGEST: Final = 4096
_READS: Final = 5

LookAround = Callable[[], Awaitable[str | None]]
"""Looks at what lies in a bucket without an owner: None where it is empty, or all this cluster's; else a
phrase that says what is not."""


class BucketRefused(Exception):
    """The bucket is not this cluster's, or may not be. The text is one line that says what to do."""


@dataclass(frozen=True, slots=True)
class Owner:
    cluster_id: Annotated[str, Field(alias="id")]
    created_ms: int
    crc: Annotated[int | None, NOT_IF_NONE] = None
    """CRC-32 of the others, as they are stored. None: put by an older build."""


_CODEC: Final = JsonCodec(Owner, OWNER_FORMAT)


def encode_owner(owner: Owner) -> bytes:
    return _CODEC.encode(replace(owner, crc=_crc(owner)))


def decode_owner(value: bytes) -> Owner:
    owner = _CODEC.decode(_WHAT, value)
    if owner.crc is not None and owner.crc != _crc(owner):
        raise ValueCorrupt(_WHAT, "its checksum does not fit")
    return owner


def _crc(owner: Owner) -> int:
    return crc32(_CODEC.encode(replace(owner, crc=None)))


async def read_owner(objects: ObjectStore) -> Owner | None:
    """None where there is no such object. Raises `ObjectError` and `UnreadableValue`.

    One answer may be wrong: so only what its checksum vouches for is believed at once. That there is none, or
    one without a checksum, has to be read twice; that it is damaged, by every read: a process would end."""
    doubted: list[Owner | None] = []
    damage: UnreadableValue = ValueCorrupt(_WHAT, "each read of it gives something else")
    for _ in range(_READS):
        try:
            found = await _read_once(objects)
        except UnreadableValue as error:
            damage = error
            continue
        if found in doubted or (found is not None and found.crc is not None):
            return None if found is None else replace(found, crc=None)
        doubted.append(found)
    raise damage


async def _read_once(objects: ObjectStore) -> Owner | None:
    try:
        if (await objects.head(OWNER)).size > _LARGEST:
            raise ValueCorrupt(_WHAT, "it is too large")
        return decode_owner(bytes(await objects.get(OWNER)))
    except ObjectMissing:
        return None


async def claim_bucket(objects: ObjectStore, cluster: ClusterInfo, look_around: LookAround) -> None:
    """The bucket is this cluster's when this returns; else `BucketRefused`, or what the store raises."""
    try:
        owner = await read_owner(objects)
        if owner is None:
            unknown = await look_around()
            if unknown is not None:
                raise BucketRefused(_unclear(cluster.cluster_id, unknown))
            owner = await put_owner(objects, cluster)
    except UnreadableValue as error:
        raise BucketRefused(str(error)) from error
    if owner.cluster_id != cluster.cluster_id:
        raise BucketRefused(_foreign(owner.cluster_id, cluster.cluster_id))


async def put_owner(objects: ObjectStore, cluster: ClusterInfo) -> Owner:
    """Put if absent, and read back whose it is then."""
    value = encode_owner(Owner(cluster.cluster_id, cluster.created_ms))
    try:
        await objects.put_if_absent(OWNER, [value])
    except ObjectExists:
        pass  # another broker of this cluster, or another cluster: what is there says which
    except Unsupported:
        # Two clusters that begin in the same moment could both come here. The one whose object was replaced
        # finds out by its next look, and deletes nothing.
        await objects.put(OWNER, [value])
    owner = await read_owner(objects)
    if owner is None:
        raise ObjectError(f"{OWNER} was put, and is not there")
    if owner.cluster_id == cluster.cluster_id:
        _log.info("the bucket belongs to this cluster", cluster=cluster.cluster_id, object=OWNER)
    return owner


class BucketGuard:
    """Says before each round of a collector whether the bucket is still this cluster's: the collectors'
    `MayDelete`. An object that cannot be read is no permission."""

    def __init__(self, objects: ObjectStore, cluster_id: str) -> None:
        self._objects = objects
        self._cluster_id = cluster_id
        self.reason: str | None = None
        """The last finding, for those who ask how the process is."""

    async def __call__(self) -> str | None:
        self.reason = await self._look()
        return self.reason

    async def _look(self) -> str | None:
        try:
            owner = await read_owner(self._objects)
        except (ObjectError, UnreadableValue) as error:
            return f"whose bucket it is cannot be read: {error}"
        if owner is None:
            return (
                f"the bucket's owner ({OWNER}) is gone: restart a broker of cluster {self._cluster_id}; it "
                "puts it back if the bucket is that cluster's"
            )
        if owner.cluster_id != self._cluster_id:
            return _foreign(owner.cluster_id, self._cluster_id)
        return None


def _foreign(owner: str, mine: str) -> str:
    return (
        f"the object store belongs to cluster {owner}, and the metadata store to cluster {mine}: correct "
        "objects.url or the metadata settings, or give this cluster a bucket or prefix of its own"
    )


def _unclear(mine: str, unknown: str) -> str:
    return (
        f"the object store has no owner, and the metadata store of cluster {mine} does not know all that "
        f"lies there ({unknown}): correct objects.url or the metadata settings; if all of it is this "
        "cluster's, or garbage, look with drayd admin adopt-bucket"
    )
