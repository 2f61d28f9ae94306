"""OffsetFetch (9), versions 1 to 10: how far a group has read.

An offset that was never committed is -1 without an error, and so are all offsets of a group that does not
exist. An offset that was committed for an earlier topic of the same name counts as never committed. There are
no transactions, so every offset is stable.

A group that may not be loaded yet is COORDINATOR_LOAD_IN_PROGRESS to those who name partitions, as consumers
do: they would begin at an old place. Tools ask for all there is, and are shown what is known of it so far.
The same holds for single topics whose offsets are not here yet, while the group is.

- v2: no topics means all of them.
- v8: a request may name many groups, each answered by itself.
- v9: a member of a KIP-848 group says its epoch, and is refused when it is not the present one.
- v10: topics are named by their ids (UNKNOWN_TOPIC_ID where there is none).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from dray.broker.api.shared import Context, handles
from dray.broker.api.shared.checks import DESCRIBE_GROUP, DESCRIBE_TOPIC, Denial
from dray.broker.groups.coordinator import GroupUnavailable, KnownOffsets, Ledger, NotAdmitted
from dray.broker.groups.offsets import CommittedOffset
from dray.broker.topics import TopicsUnavailable
from dray.kafka.protocol import ZERO_UUID, ErrorCode
from dray.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_ERROR_FROM: Final = 2
_MANY_FROM: Final = 8
_BY_ID: Final = 10
_NONE: Final = -1

_Offsets: TypeAlias = Ledger | KnownOffsets


@handles(OffsetFetchRequest, 1, 10, checks={DESCRIBE_GROUP: Denial.GROUP, DESCRIBE_TOPIC: Denial.PARTITION})
async def handle(context: Context, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if context.version >= _MANY_FROM:
        groups = await context.large.gather(_fetch(context, group) for group in _once(request.groups))
        return OffsetFetchResponse(groups=groups)
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(ZERO_UUID, topic.name, topic.partition_indexes)
            for topic in request.topics
        ]
    one = await _fetch(context, OffsetFetchRequestGroup(request.group_id, topics=topics))
    response = OffsetFetchResponse(error_code=one.error_code)
    if one.error_code and context.version < _ERROR_FROM:
        # In these versions an error can only stand beside each partition.
        one.topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[_nothing(index, one.error_code) for index in topic.partition_indexes],
            )
            for topic in topics or ()
        ]
    response.topics = [
        OffsetFetchResponseTopic(
            topic.name,
            [
                OffsetFetchResponsePartition(
                    partition.partition_index,
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.metadata,
                    partition.error_code,
                )
                for partition in topic.partitions
            ],
        )
        for topic in one.topics
    ]
    return response


def _once(groups: Sequence[OffsetFetchRequestGroup]) -> Iterable[OffsetFetchRequestGroup]:
    """All that a group has is answered once, however often it is asked for."""
    whole: set[str] = set()
    for group in groups:
        if group.topics is None:
            if group.group_id in whole:
                continue
            whole.add(group.group_id)
        yield group


class _Wanted(NamedTuple):
    topic_id: UUID
    name: str | None
    """None for an id that no topic has."""

    partitions: Sequence[int]


async def _fetch(context: Context, group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    response = OffsetFetchResponseGroup(group_id=group.group_id)
    if not context.may(DESCRIBE_GROUP, group.group_id):
        response.error_code = DESCRIBE_GROUP.refusal
        return response
    by_id = context.version >= _BY_ID
    try:
        wanted = (
            None if group.topics is None else [await _want(context, topic, by_id) for topic in group.topics]
        )
        ledger: _Offsets | None = await context.services.groups.offsets(
            group.group_id,
            group.member_id,
            group.member_epoch,
            ((topic.name, index) for topic in wanted or () if topic.name for index in topic.partitions),
        )
    except GroupUnavailable as refusal:
        if not isinstance(refusal, NotAdmitted) or group.topics is not None:
            response.error_code = refusal.error
            return response
        wanted, ledger = None, refusal.offsets()
    except TopicsUnavailable:
        response.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        return response
    if wanted is None:
        wanted = [] if ledger is None else _all(context, ledger, by_id)
    response.topics = [_answer(context, ledger, topic, by_id) for topic in wanted]
    return response


async def _want(context: Context, topic: OffsetFetchRequestTopics, by_id: bool) -> _Wanted:
    if not by_id:
        return _Wanted(ZERO_UUID, topic.name, topic.partition_indexes)
    found = await context.services.topics.get_by_id(topic.topic_id)
    return _Wanted(topic.topic_id, None if found is None else found.name, topic.partition_indexes)


def _all(context: Context, ledger: _Offsets, by_id: bool) -> list[_Wanted]:
    """Every offset of the group; a topic that is gone has no id to be named by."""
    found = []
    for name, partitions in ledger.topics().items():
        if not context.sees(DESCRIBE_TOPIC, name):
            continue
        topic = context.services.topics.cached(name)
        present = [index for index in partitions if _find(context, ledger, name, index) is not None]
        if present and (topic is not None or not by_id):
            topic_id = topic.topic_id if topic is not None and by_id else ZERO_UUID
            found.append(_Wanted(topic_id, name, present))
    return found


def _find(context: Context, ledger: _Offsets, name: str, index: int) -> CommittedOffset | None:
    offset, topic = ledger.find(name, index), context.services.topics.cached(name)
    if offset is None or (topic is not None and not offset.is_of(topic.topic_id)):
        return None
    return offset


def _answer(
    context: Context, ledger: _Offsets | None, wanted: _Wanted, by_id: bool
) -> OffsetFetchResponseTopics:
    if wanted.name is None:
        unknown = [_nothing(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in wanted.partitions]
        return OffsetFetchResponseTopics(topic_id=wanted.topic_id, partitions=unknown)
    if not context.may(DESCRIBE_TOPIC, wanted.name):
        refused = [_nothing(index, DESCRIBE_TOPIC.refusal) for index in wanted.partitions]
        return OffsetFetchResponseTopics(wanted.topic_id, "" if by_id else wanted.name, refused)
    partitions = []
    for index in wanted.partitions:
        offset = None if ledger is None else _find(context, ledger, wanted.name, index)
        if offset is None:
            partitions.append(_nothing(index))
        else:
            partitions.append(
                OffsetFetchResponsePartitions(index, offset.offset, offset.leader_epoch, offset.metadata)
            )
    return OffsetFetchResponseTopics(wanted.topic_id, "" if by_id else wanted.name, partitions)


def _nothing(index: int, error: int = ErrorCode.NONE) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=_NONE, metadata="", error_code=error
    )
