"""Live migrations, for people and for programs: what will happen, and how far each is."""

from __future__ import annotations

from typing import Any, Final

from dray.cli.migration_views import print_borrowed, print_missing, size_text, time_text
from dray.cli.output import print_table
from dray.daemons.migrator.links import LinkPreview, LiveStatus, SwitchPreview
from dray.daemons.migrator.migration import HandedOver
from dray.daemons.migrator.source_security import SourceAcls, SourceUsers
from dray.inspection.topics.links import MEANINGS
from dray.kafka.acls import text_of
from dray.migration.groups.copy import CopyState
from dray.migration.groups.rounds import GroupsOfTopic
from dray.migration.live.moving_topic import UsersLook
from dray.migration.record import MigrationRecord, MigrationState

_MOST_NAMED: Final = 10
_MOST_ACLS: Final = 50
_GROUPS: Final = {
    CopyState.FOLLOWED: "groups that wait until the topic is switched and their members have left the source",
    CopyState.MOVED: "groups that have moved",
    CopyState.HERE: "groups that had members here already, and are left alone",
}


def print_link(found: LinkPreview) -> None:
    plan = found.plan
    print(f"topic {plan.topic}, id {plan.topic_id}, as the source has it")
    tiers = {} if found.tier is None else {each.partition: each for each in found.tier.partitions}
    print_table(
        ["partition", "start", "tier ends", "end", "records to mirror", "size", "leader epoch"],
        [
            (
                partition,
                end.start if partition not in tiers else tiers[partition].start,
                "-" if partition not in tiers else tiers[partition].end,
                end.last_stable,
                end.last_stable - (end.start if partition not in tiers else tiers[partition].end),
                "?" if plan.sizes is None else size_text(plan.sizes.get(partition, 0)),
                end.leadership.epoch,
            )
            for partition, end in sorted(plan.ends.items())
        ],
        right=["size"],
    )
    size = "an unknown size" if plan.size is None else size_text(plan.size)
    print(f"what will happen: a topic of {len(plan.ends)} partitions comes here, and {size} is mirrored,")
    print("  offset by offset; clients can read it here at once. The source stays as it is, and owns it.")
    if found.tier is not None:
        print(f"  {found.tier.segments} segments of its tier are read where they lie.")
    print(f"groups that are followed: {_named(plan.groups)}")
    print("configs: " + (", ".join(f"{k}={v}" for k, v in sorted(found.configs.items())) or "none"))
    for each in plan.notes:
        print(f"note: {each}")
    _print_acls(found.acls)
    _print_source_users(found.source_users)


def print_switch(topic: str, seen: SwitchPreview) -> None:
    how = {
        "acl": "an ACL denies WRITE on the topic to all at the source",
        "size": "max.message.bytes=0 is set on the topic at the source",
        "stopped": "nothing is done at the source: you say that its writers are stopped",
    }[seen.fence]
    print(f"topic {topic}: what will happen")
    print(f"  1. {how}; each leader is probed until it refuses")
    print(f"  2. the mirror brings the last records ({seen.lag} are missing now)")
    print("  3. if producers and offsets agree on both sides, the topic is Dray's: no way back from here")
    print("  4. groups move when their last member has left the source; its end is watched for stragglers")
    print("  should 1 to 3 not come right, the fence is lifted and all is as before")
    print(
        f"producers wait about {max(0.1, seen.pause_seconds):.1f} s from 1 to 3, once the mirror has caught "
        f"up: {len(seen.record.streams)} partitions, and the source and Dray's store as far away as now"
    )
    if seen.transactions:
        print(f"note: transactions are open at the source: {_named(seen.transactions)}")
    _print_users(seen.users)
    _print_acls(seen.acls)
    _print_source_users(seen.source_users)


def _print_users(users: UsersLook) -> None:
    if users.writers:
        print(
            f"transactional producers write to it, which Dray does not take: {_named(users.writers)}; stop "
            "or change them before the switch"
        )
    if users.assigning:
        print(
            f"consumers that assign partitions to themselves: {_named(users.assigning)}; stop them before "
            "the switch, and start them here afterwards"
        )


def _print_acls(acls: SourceAcls) -> None:
    if acls.opens:
        print("note: Dray asks nobody who may use the topic (security.authorization), and the source does")
    if acls.unseen:
        print(f"note: {acls.unseen}")
    if acls.missing:
        print("ACLs of the source that have no equal here; --acls adds them, each for this very name:")
        for each in acls.missing[:_MOST_ACLS]:
            print(f"  {text_of(each)}")
        if len(acls.missing) > _MOST_ACLS:
            print(f"  and {len(acls.missing) - _MOST_ACLS} more: --json has all of them")
        print("  their users need passwords or certificates here: drayd admin user add")


def _print_source_users(found: SourceUsers) -> None:
    for each in found.unseen:
        print(f"note: {each}")
    if found.quotas:
        print("quotas of the source that are not set here; --quotas sets them, for all topics:")
        for quota in found.quotas[:_MOST_ACLS]:
            print(f"  {quota.text}")
        if len(found.quotas) > _MOST_ACLS:
            print(f"  and {len(found.quotas) - _MOST_ACLS} more: --json has all of them")
    if found.users:
        print(
            f"users of the source without a password here: {_named(found.users)}. Kafka gives no passwords "
            "out: those who use the topic get new ones (drayd admin user add NAME)"
        )


def print_hand_over(topic: str, found: GroupsOfTopic) -> None:
    waiting = found.states.get(CopyState.FOLLOWED, ())
    known = [group for group in waiting if group not in found.unread]
    print(f"topic {topic}: what will happen, without asking the source")
    print(f"  Dray's from now on, with what was copied last: {_named(known)}")
    print("  what they committed there after that is not known: they read it again")
    if found.unread:
        print(f"  set free, as it was never known how far they had read: {_named(found.unread)}")
    print("  the same for groups of other topics of that source that are switched; then nothing is watched")


def print_handed_over(topic: str, done: HandedOver) -> None:
    report = done.report
    print(f"topic {topic} is {done.record.state.value}; handed over: {_named(report.handed_over)}")
    if report.released:
        print(f"set free: {_named(report.released)}")
    for group, why in sorted(report.waiting.items())[:_MOST_NAMED]:
        print(f"{group} waits {why}")


def print_live(status: LiveStatus) -> None:
    record = status.record
    print(f"topic {status.topic}: {record.state.value}. {MEANINGS.get(record.state, '')}")
    print(f"  linked to {record.upstream} ({record.source}) since {time_text(record.created_ms)}")
    print_table(
        ["partition", "here up to", "source's end", "lag", "boundary", "stopped"],
        [
            (
                each.partition,
                _or_dash(each.mirrored),
                _or_dash(each.source_end),
                _or_dash(each.lag),
                _or_dash(each.boundary),
                (record.stopped or {}).get(each.partition, ""),
            )
            for each in status.partitions
        ],
    )
    if status.trouble:
        print(f"the source was not asked: {status.trouble}")
        if record.state is MigrationState.SWITCHED and status.groups.get(CopyState.FOLLOWED):
            print(
                "groups wait for it. If it is gone for good: drayd migrate hand-over "
                f"{status.topic} --without-source"
            )
    if record.why:
        word = "the switch does not go on" if record.is_pending else "the last switch went back"
        print(f"{word}: {record.why}")
    if record.state is MigrationState.MIRRORING and record.undo is not None:
        print("the fence at the source is not lifted yet: a migrator does it when it reaches the source")
    if record.fence == "stopped" and record.state is not MigrationState.MIRRORING:
        print("not fenced: the source's writers were stopped by hand")
    for partition, skipped in sorted((record.skipped or {}).items()):
        print(
            f"partition {partition}: {skipped.offsets} offsets below {skipped.below} are not here: the "
            "source had deleted them before they were mirrored"
        )
    for state, what in _GROUPS.items():
        if groups := status.groups.get(state):
            print(f"{what}: {_named(groups)}")
    if status.unread:
        print(f"of these, the source has not said how far they have read: {_named(status.unread)}")
    if status.left:
        named = [f"{group} ({why})" for group, why in sorted(status.left.items())]
        print(f"groups of the source that are not followed: {_named(named)}")
    for partition, count in sorted((record.stragglers or {}).items()):
        print(
            f"partition {partition}: {count} offsets are at the source behind the boundary: "
            f"drayd migrate stragglers {status.topic}"
        )
    _print_users(status.users)
    if status.borrowed:
        print_borrowed(status.topic, status.borrowed)
    print_missing(status.topic, status.missing, status.unseen)


def live_as_plain(status: LiveStatus) -> dict[str, Any]:
    record = status.record
    return {
        "topic": status.topic,
        "borrowed": status.borrowed,
        "missing": status.missing,
        "state": record.state.value,
        "topic_id": str(record.topic_id),
        "upstream": record.upstream,
        "source": record.source,
        "fence": record.fence,
        "attempt": record.attempt,
        "why": record.why,
        "fence_to_lift": record.state is MigrationState.MIRRORING and record.undo is not None,
        "trouble": status.trouble or None,
        "groups": {state.value: list(status.groups.get(state, ())) for state in _GROUPS},
        "unread_groups": list(status.unread),
        "left_groups": dict(status.left),
        "transactional": list(status.users.writers),
        "assigning": list(status.users.assigning),
        "partitions": [
            {
                "partition": each.partition,
                "mirrored": each.mirrored,
                "source_end": each.source_end,
                "lag": each.lag,
                "boundary": each.boundary,
                "stopped": (record.stopped or {}).get(each.partition),
                "stragglers": (record.stragglers or {}).get(each.partition, 0),
                "skipped": _skipped(record, each.partition),
            }
            for each in status.partitions
        ],
    }


def preview_as_plain(found: LinkPreview) -> dict[str, Any]:
    plan = found.plan
    return {
        "topic": plan.topic,
        "topic_id": str(plan.topic_id),
        "size": plan.size,
        "partitions": [
            {
                "partition": partition,
                "start": end.start,
                "end": end.last_stable,
                "leader_epoch": end.leadership.epoch,
                "size": None if plan.sizes is None else plan.sizes.get(partition, 0),
            }
            for partition, end in sorted(plan.ends.items())
        ],
        "groups": list(plan.groups),
        "transactional": list(plan.transactional),
        "assigning": list(plan.assigning),
        "configs": dict(found.configs),
        "notes": list(plan.notes),
        "authorizer": found.acls.has_authorizer,
        "acls": [text_of(each) for each in found.acls.missing],
        "quotas": [each.text for each in found.source_users.quotas],
        "users": {name: list(held) for name, held in found.source_users.users.items()},
    }


def _skipped(record: MigrationRecord, partition: int) -> int:
    found = (record.skipped or {}).get(partition)
    return 0 if found is None else found.offsets


def _named(names: Any) -> str:
    shown = list(names)
    more = len(shown) - _MOST_NAMED
    return (", ".join(shown[:_MOST_NAMED]) or "none") + (f" and {more} more" if more > 0 else "")


def _or_dash(number: int | None) -> object:
    return "-" if number is None else number
