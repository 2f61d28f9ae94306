"""Static members of classic groups: they come back under a new id, and there is only one of each."""

from __future__ import annotations

from tests.referee.cases import group_case, subscription
from tests.referee.groups.classic_cases import REBALANCE_IN_PROGRESS, SHORT_MS
from tests.referee.groups.members import ClassicMember, stable, synced
from tests.referee.session import Session


def static(s: Session, name: str, instance: str, **settings: object) -> ClassicMember:
    return ClassicMember(s, name, instance=instance, **settings)  # type: ignore[arg-type]


@group_case
async def static_members_come_back(s: Session) -> None:
    topic = await s.create()
    a, b = static(s, "a", "one"), static(s, "b", "two")
    await stable(s, a, b)
    await s.describe("stable")
    again = static(s, "b2", "two")
    await again.join("a follower comes back")
    await s.describe("no rebalance")
    await b.heartbeat("its old self")
    await b.sync("its old self syncs")
    await b.join("its old self joins")
    await b.commit("its old self commits", topic)
    await b.commit("its old self commits, by its id alone", topic, group_instance_id=None)
    await b.leave("its old self leaves")
    await again.sync("it fetches what it had")
    await again.heartbeat("it lives")
    await again.commit("it commits", topic)
    leader = static(s, "a2", "one")
    await leader.join("the leader comes back")
    await leader.sync("it need not assign")
    await leader.heartbeat("it lives, too")
    await s.describe("still no rebalance")


@group_case
async def static_leader_comes_back_below_version_9(s: Session) -> None:
    a, b = static(s, "a", "one"), static(s, "b", "two")
    await stable(s, a, b)
    for version in (5, 8):
        again = static(s, f"a{version}", "one", version=version)
        await again.join(f"version {version}")
        await again.sync(f"sync {version}", version=3)
        await again.heartbeat(f"heartbeat {version}")
    await s.describe("still one generation")


@group_case
async def static_member_comes_back_changed(s: Session) -> None:
    a, b = static(s, "a", "one"), static(s, "b", "two")
    await stable(s, a, b)
    again = static(s, "b2", "two", protocols=[("range", subscription("t", "u"))])
    join = again.joining("changed metadata of the same protocol")
    await s.until_settled(join)
    if not join.done():
        await a.join("the leader, called back")
    await join
    await s.describe("afterwards")


@group_case
async def static_member_comes_back_with_another_choice(s: Session) -> None:
    a = static(s, "a", "one", protocols=[("x", subscription("t")), ("y", subscription("t"))])
    b = static(s, "b", "two", protocols=[("x", subscription("t")), ("y", subscription("t"))])
    await stable(s, a, b)
    again = static(s, "a2", "one", protocols=[("y", subscription("t"))])
    join = again.joining("only the other protocol is left")
    await s.until("PreparingRebalance")
    await b.heartbeat("b hears of it")
    await b.join("b joins again")
    await join
    await s.describe("the other protocol")


@group_case
async def static_member_with_a_known_id(s: Session) -> None:
    a, b = static(s, "a", "one"), static(s, "b", "two")
    await stable(s, a, b)
    await b.join("unchanged, with its id")
    await b.join("with its id and no instance", group_instance_id=None)
    await a.join("with an unknown instance", member_id=b.member_id, group_instance_id="three")
    await a.join("with an unknown id", member_id="nobody")
    await a.heartbeat("heartbeat without the instance", group_instance_id=None)
    await a.heartbeat("heartbeat of another instance", group_instance_id="two")
    await a.heartbeat("heartbeat of an unknown instance", group_instance_id="three")
    await a.sync("sync of another instance", group_instance_id="two")
    await a.heartbeat("still there")


@group_case
async def static_members_replaced_while_they_wait(s: Session) -> None:
    a, b = static(s, "a", "one"), static(s, "b", "two")
    join = a.joining("a joins")
    await s.until("PreparingRebalance", 1)
    again = static(s, "a2", "one")
    second = again.joining("a joins elsewhere")
    await join
    third = b.joining("b joins")
    await second
    await third
    await s.describe("completing")


@group_case
async def static_member_replaced_while_completing(s: Session) -> None:
    a, b = static(s, "a", "one"), static(s, "b", "two")
    join = a.joining("a joins")
    await s.until("PreparingRebalance", 1)
    await b.join("b joins")
    await join
    sync = b.syncing("b waits for the leader")
    again = static(s, "b2", "two")
    join = again.joining("b joins elsewhere, while completing")
    await s.until_settled(join)
    await sync
    await s.describe("then")
    if not join.done():
        await a.join("a joins again")
    await join
    await synced(a, again, again=" at last")


@group_case
async def static_members_stay_over_a_rebalance(s: Session) -> None:
    """Who does not join again in time goes, but for static members."""
    a = ClassicMember(s, "a", rebalance_ms=SHORT_MS)
    b = static(s, "b", "two", rebalance_ms=SHORT_MS)
    await stable(s, a, b)
    c = ClassicMember(s, "c", rebalance_ms=SHORT_MS)
    join = c.entering("c joins")
    await s.until("PreparingRebalance", 3)
    await a.join("a joins again")
    await join
    await s.describe("b is still a member")
    await b.heartbeat("b lives on")


@group_case
async def static_member_expires(s: Session) -> None:
    a, b = static(s, "a", "one"), static(s, "b", "two", session_ms=SHORT_MS)
    await stable(s, a, b)
    await a.heartbeat_until(REBALANCE_IN_PROGRESS)
    await s.describe("b is gone")
    await b.heartbeat("b is not known any more")
    await a.join("a joins again")


@group_case
async def static_member_removed_by_an_administrator(s: Session) -> None:
    a, b = static(s, "a", "one"), static(s, "b", "two")
    await stable(s, a, b)
    await b.leave("by its instance", members=[b.identity("")])
    await a.heartbeat("a hears of it")
    await b.heartbeat("b is not known any more")
    await a.leave("by both", members=[a.identity(a.member_id)])
    await s.describe("empty")
