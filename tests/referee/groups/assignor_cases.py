"""What the assignors give to whom. Where Java's hash order decides who comes first, members are told apart by
what they subscribe to only: the same shares must be there, whoever has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.referee.cases import group_case
from tests.referee.groups.members import ConsumerMember, settle
from tests.referee.session import Session

Owned = Mapping[str, Sequence[int]]


def by_name(members: Sequence[ConsumerMember]) -> Any:
    return {member.name: shares(member.owned) for member in members}


def whoever(members: Sequence[ConsumerMember]) -> Any:
    """The shares, each with the subscription of who has it."""
    return sorted([sorted(member.topics or ()), shares(member.owned)] for member in members)


def loads(members: Sequence[ConsumerMember]) -> Any:
    """How many partitions each has, with its subscription."""
    return sorted(
        [sorted(member.topics or ()), sum(len(items) for items in member.owned.values())]
        for member in members
    )


def shares(owned: Owned) -> list[Any]:
    return sorted([topic, list(partitions)] for topic, partitions in owned.items())


def moved(before: Mapping[str, Owned], members: Sequence[ConsumerMember]) -> int:
    """How many partitions somebody has now who did not have them before."""
    count = 0
    for member in members:
        had = {(topic, item) for topic, items in before.get(member.name, {}).items() for item in items}
        has = {(topic, item) for topic, items in member.owned.items() for item in items}
        count += len(has - had)
    return count


async def join_all(s: Session, members: Sequence[ConsumerMember]) -> None:
    """Everybody before anybody gives anything up: then the order of joining matters least."""
    for member in members:
        label = f"({member.name} joins)"
        await member.join(label)
        del s.notes[label]
    await settle(s, *members)


@group_case
async def assignor_range(s: Session) -> None:
    one, two = await s.assignable("one", 7), await s.assignable("two", 2)
    members = [ConsumerMember(s, name, [one, two], assignor="range") for name in "bac"]
    await join_all(s, members)
    s.notes["three members"] = by_name(members)
    await s.describe_consumer("described")
    last = ConsumerMember(s, "d", [two], assignor="range")
    await join_all(s, [last])
    await settle(s, *members, last)
    s.notes["and one that reads less"] = by_name([*members, last])
    await members[0].leave("b leaves")
    rest = [*members[1:], last]
    await settle(s, *rest)
    s.notes["without b"] = by_name(rest)


@group_case
async def assignor_range_with_static_members(s: Session) -> None:
    topic = await s.assignable(partitions=5)
    members = [
        ConsumerMember(s, "a", [topic], assignor="range"),
        ConsumerMember(s, "b", [topic], assignor="range", instance="z"),
        ConsumerMember(s, "c", [topic], assignor="range", instance="y"),
    ]
    await join_all(s, members)
    s.notes["static ones first, by instance"] = by_name(members)


@group_case
async def assignor_uniform(s: Session) -> None:
    one, two = await s.assignable("one", 7), await s.assignable("two", 3)
    members = [ConsumerMember(s, name, [one, two], assignor="uniform") for name in "abc"]
    for count in (1, 2, 3):
        await join_all(s, members[count - 1 : count])
        before = {member.name: dict(member.owned) for member in members[:count]}
        await settle(s, *members[:count])
        s.notes[f"loads of {count}"] = loads(members[:count])
        s.notes[f"moved for {count}"] = moved(before, members[:count])
    before = {member.name: dict(member.owned) for member in members}
    await members[1].leave("b leaves")
    rest = [members[0], members[2]]
    await settle(s, *rest)
    s.notes["loads without b"] = loads(rest)
    s.notes["moved without b"] = moved(before, rest)


@group_case
async def assignor_uniform_two_members(s: Session) -> None:
    """Few enough that the shares themselves are the same."""
    topic = await s.assignable(partitions=6)
    members = [ConsumerMember(s, name, [topic], assignor="uniform") for name in "ab"]
    await join_all(s, members)
    s.notes["two"] = whoever(members)
    third = ConsumerMember(s, "c", [topic], assignor="uniform")
    await join_all(s, [third])
    await settle(s, *members, third)
    s.notes["three"] = whoever([*members, third])
    await third.leave("c leaves")
    await settle(s, *members)
    s.notes["two again"] = whoever(members)


@group_case
async def assignor_uniform_mixed_subscriptions(s: Session) -> None:
    one, two, three = (
        await s.assignable("one", 3),
        await s.assignable("two", 3),
        await s.assignable("three", 4),
    )
    members = [
        ConsumerMember(s, "a", [one], assignor="uniform"),
        ConsumerMember(s, "b", [one, two], assignor="uniform"),
        ConsumerMember(s, "c", [one, two, three], assignor="uniform"),
    ]
    await join_all(s, members)
    s.notes["loads"] = loads(members)
    before = {member.name: dict(member.owned) for member in members}
    await members[0].leave("a leaves")
    rest = members[1:]
    await settle(s, *rest)
    s.notes["loads without a"] = loads(rest)
    s.notes["moved without a"] = moved(before, rest)
