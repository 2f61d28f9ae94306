"""A link with a tier: the mirror goes on where the tier ends, so it must end where the source can go on."""

from __future__ import annotations

from uuid import UUID

import pytest

from dray.base.runtime import Runtime
from dray.daemons.assembly.failures import Failure
from dray.daemons.migrator import migration
from dray.daemons.migrator.links import _check_tier, _one_line
from dray.daemons.migrator.stragglers import REFUSALS
from dray.daemons.migrator.upstream_clusters import UnknownUpstream
from dray.kafka.client.errors import AuthenticationFailed, ClientError, RequestFailed
from dray.kafka.protocol import ErrorCode
from dray.migration.attach.found import MigrationRefused, PartitionRefused
from dray.migration.attach.inventory import SourceLayout
from dray.migration.attach.lineage import PartitionLineage
from dray.migration.attach.plan import AttachPlan, PartitionPlan
from dray.migration.formats.kafka_files import ProducerRow
from dray.migration.live.link import LinkPlan, notes_on
from dray.migration.source.mirror import MirrorStopped
from dray.migration.source.source import Leadership, SourceEnd

TOPIC_ID = UUID(int=3)


def live(*ends: tuple[int, int], size: int = 0, transactional: tuple[str, ...] = ()) -> LinkPlan:
    found = {
        number: SourceEnd(Leadership(1, 0), start, end, end, end) for number, (start, end) in enumerate(ends)
    }
    return LinkPlan("orders", TOPIC_ID, found, {0: size}, (), transactional, ())


def tier(*ends: int, open_from: int = -1, refused: str = "") -> AttachPlan:
    producer = ProducerRow(
        producer_id=5,
        epoch=0,
        last_sequence=9,
        last_offset=9,
        offset_delta=0,
        timestamp=0,
        coordinator_epoch=0,
        transaction_first_offset=open_from,
    )
    plans = [
        PartitionPlan(number, PartitionLineage(0, end, 0, ()), 0, (producer,))
        for number, end in enumerate(ends)
    ]
    wrong = (PartitionRefused(0, refused),) if refused else ()
    return AttachPlan("orders", SourceLayout.KAFKA_TIERED, TOPIC_ID, tuple(plans), wrong)


def test_a_tier_that_ends_where_the_source_goes_on() -> None:
    _check_tier(live((0, 20), (10, 20)), tier(10, 10))
    _check_tier(live((0, 20), (0, 20)), tier(10, 0))  # nothing of the last partition is in the tier yet


@pytest.mark.parametrize(
    ("plan", "found", "why"),
    [
        # Whether it is committed is not known there: its records would be shown, or hidden, wrongly for ever.
        (
            live((0, 20)),
            tier(10, open_from=4),
            "transaction of producer 5 was still open where the tier ends",
        ),
        (live((11, 20)), tier(10), "the tier ends at 10, and the source has 11 to 20"),
        (live((0, 9)), tier(10), "the tier ends at 10, and the source has 0 to 9"),
        (live((0, 20)), tier(10, refused="a gap"), "partition 0: a gap"),
    ],
    ids=["open transaction", "hole", "lost", "refused"],
)
def test_a_tier_that_cannot_be_gone_on_from_is_refused(plan: LinkPlan, found: AttachPlan, why: str) -> None:
    with pytest.raises(MigrationRefused, match=why):
        _check_tier(plan, found)


def test_what_an_operator_should_know_is_noted() -> None:
    assert notes_on(live((0, 20)), {"retention.ms": "-1", "cleanup.policy": "delete"}) == []
    compacted = notes_on(live((0, 20)), {"cleanup.policy": "compact,delete"})
    assert ["the source compacts it by key" in note for note in compacted] == [True]
    [named] = notes_on(live((0, 20), transactional=("payments",)), {})
    assert named.startswith("payments is a transactional producer")
    assert notes_on(live((0, 20)), {"retention.ms": "60000", "cleanup.policy": "compact"})[1:] == []


@pytest.mark.parametrize(
    ("size", "configs", "is_much"),
    [
        (0, {"retention.ms": "60000"}, True),
        ((20 << 20) * 86_400, {"retention.ms": "86400000"}, True),
        ((20 << 20) * 86_400, {"retention.ms": "259200000"}, False),
        (0, {"retention.bytes": "1073741824"}, False),
        (0, {"retention.ms": "604800000", "retention.bytes": "-1", "cleanup.policy": "delete"}, False),
    ],
)
def test_the_oldest_records_may_go_before_they_are_mirrored(
    size: int, configs: dict[str, str], is_much: bool
) -> None:
    """Whatever the retention is, the oldest records are about to go."""
    [note] = notes_on(live((0, 20), size=size), configs)
    [named] = [f"{name}={value}" for name, value in configs.items() if value.isdigit()]
    assert f"the source deletes its oldest records meanwhile ({named})" in note
    assert ("raise retention.ms there until the mirror has caught up" in note) == is_much


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (RequestFailed("create ACLs", ErrorCode.CLUSTER_AUTHORIZATION_FAILED), "needs ALTER and DESCRIBE"),
        (
            RequestFailed("no", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            "needs READ, WRITE, DESCRIBE and DESCRIBE_CONFIGS",
        ),
        (ClientError("h:1: refused"), "upstream old cannot be reached: h:1: refused"),
        (AuthenticationFailed("wrong password"), "wrong password"),
    ],
)
def test_what_goes_wrong_at_the_source_is_one_line(failure: Exception, says: str) -> None:
    with pytest.raises(MigrationRefused, match=says), _one_line("old"):
        raise failure


@pytest.mark.parametrize(
    "failure",
    [UnknownUpstream("add it"), RequestFailed("no"), ClientError("h:1: refused"), MirrorStopped(0, "gone")],
)
def test_what_a_command_can_be_refused_with_is_one_line(failure: Exception) -> None:
    async def work(_: Runtime) -> None:
        raise failure

    with pytest.raises(Failure, match=str(failure)):
        migration.run(work, REFUSALS)
    with pytest.raises(type(failure)):
        migration.run(work)
