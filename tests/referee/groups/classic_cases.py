"""Classic groups: joining, leading, following, and being told off."""

from __future__ import annotations

from collections.abc import Sequence

from dray.kafka.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.referee.cases import group_case, subscription
from tests.referee.groups.members import ClassicMember, stable, synced
from tests.referee.session import Session

SHORT_MS = 2_500
"""A timeout that a case waits for. Long enough for what must happen before it."""

REBALANCE_IN_PROGRESS = 27
UNKNOWN_MEMBER_ID = 25


@group_case
async def join_first_member(s: Session) -> None:
    a = ClassicMember(s, "a")
    await s.describe("before", version=5)
    await a.join("without an id")
    await s.until("Empty")  # Kafka answers before it is
    await s.describe("with a pending member", version=5)
    await a.heartbeat("heartbeat before it joined", generation_id=0)
    await a.sync("sync before it joined", generation_id=0)
    await a.join("with the id")
    await s.describe("joined")
    await a.heartbeat("heartbeat before the sync")
    await a.sync("syncs", {a: b"all"})
    await a.heartbeat("heartbeat")
    await s.describe("stable")
    await s.describe("stable, version 0", version=0)
    await s.list_own("listed")


@group_case
async def join_old_versions(s: Session) -> None:
    for version in (0, 1, 3, 4, 5, 6, 7, 8):
        a = ClassicMember(s, f"v{version}", group=s.group_named(str(version)), version=version)
        await a.enter(f"version {version}")
        sync_version = min(version, 5)
        await a.sync(f"sync {version}", {a: b"x"}, version=sync_version)
        await a.heartbeat(f"heartbeat {version}", version=min(version, 4))
        await a.leave(f"leave {version}", version=min(version, 5))
        await s.describe(f"describe {version}", min(version, 6), a.group)


@group_case
async def join_refused(s: Session) -> None:
    a = ClassicMember(s, "a")
    await a.join("empty group", group_id="")
    await a.join("session too short", session_timeout_ms=1)
    await a.join("session too long", session_timeout_ms=2**31 - 1)
    await a.join("session too short, version 0", session_timeout_ms=1, version=0)
    await a.join("no protocols", protocols=[])
    await a.join("no protocol type", protocol_type="")
    await a.join("unknown member of no group", member_id="nobody")
    await a.join("static member with an id, of no group", member_id="nobody", group_instance_id="one")
    await a.join("negative rebalance timeout, unknown member", rebalance_timeout_ms=-1, member_id="nobody")
    await s.describe("nothing came of it", version=5)
    await s.list_own("nothing is listed")
    await stable(s, a)
    b = ClassicMember(s, "b")
    await b.join("unknown member", member_id="nobody")
    await b.join("other protocol type", protocol_type="connect")
    await b.join(
        "other protocol", protocols=ClassicMember(s, "x", protocols=[("other", b"")]).wire_protocols()
    )
    await b.join("empty group id, with a group there", group_id="")
    await a.heartbeat("nothing was disturbed")


@group_case
async def members_that_only_asked_for_an_id(s: Session) -> None:
    a = ClassicMember(s, "a")
    await a.join("a, for an id")
    await a.leave("a leaves")
    await a.join("a with the id it gave up")
    b = ClassicMember(s, "b", session_ms=SHORT_MS)
    await b.join("b, for an id")
    await a.join("with somebody else's id", member_id=b.member_id)
    c = ClassicMember(s, "c")
    await c.join("c, for an id")
    await c.join("c with other protocols", protocols=ClassicMember(s, "x", protocols=[]).wire_protocols())


@group_case
async def three_members(s: Session) -> None:
    a, b, c = (ClassicMember(s, name, protocols=[("range", subscription(name))]) for name in "abc")
    await stable(s, a, b, c)
    await s.describe("stable")
    for member in (a, b, c):
        await member.heartbeat(f"heartbeat of {member.name}")
    await b.sync("b syncs again")
    await a.sync("the leader syncs again, with something else", {a: b"other"})
    await s.describe("nothing changed")
    await b.leave("b leaves")
    await s.describe("preparing")
    await a.heartbeat("a hears of it")
    await b.heartbeat("b is gone")
    await c.sync("c syncs while preparing")
    joins = a.joining("a joins again"), c.joining("c joins again")
    for join in joins:
        await join
    await synced(a, c, again=" again")
    await s.describe("second generation")
    await a.heartbeat("old generation", generation_id=1)


@group_case
async def leader_leaves(s: Session) -> None:
    a, b = ClassicMember(s, "a"), ClassicMember(s, "b")
    await stable(s, a, b)
    await a.leave("the leader leaves")
    await b.join("b joins again")
    await b.sync("b leads", {b: b"b"})
    await s.describe("b alone")
    await b.leave("b leaves")
    await s.describe("empty")
    await s.list_own("listed as empty")
    await b.heartbeat("heartbeat to an empty group")
    await b.join("with its old id")
    c = ClassicMember(s, "c")
    await c.enter("c joins the empty group")


@group_case
async def protocols_are_voted_for(s: Session) -> None:
    x, y, z = subscription("x"), subscription("y"), subscription("z")
    a = ClassicMember(s, "a", protocols=[("x", x), ("y", y), ("only a", z)])
    b = ClassicMember(s, "b", protocols=[("y", y), ("x", x)])
    c = ClassicMember(s, "c", protocols=[("y", y), ("x", x)])
    await stable(s, a, b, c)
    await s.describe("chosen")
    await a.sync("another protocol", protocol_name="x")
    await a.sync("another protocol type", protocol_type="connect")
    await a.sync("no protocol named", protocol_name=None, protocol_type=None)
    d = ClassicMember(s, "d", protocols=[("z", z)])
    await d.join("nothing in common")


@group_case
async def rejoin_while_stable(s: Session) -> None:
    a, b = ClassicMember(s, "a"), ClassicMember(s, "b")
    await stable(s, a, b)
    await b.join("an unchanged follower")
    await s.describe("nothing happened")
    b.protocols = [("range", subscription("t", "u"))]
    join = b.joining("a changed follower")
    await s.until("PreparingRebalance")
    await a.join("the leader, called back")
    await join
    await synced(a, b, again=" again")
    join = a.joining("the leader, of its own accord")
    await s.until("PreparingRebalance")
    await b.heartbeat("the follower hears of it")
    await b.join("the follower, called back")
    await join
    await s.describe("third generation")


@group_case
async def rejoin_while_completing(s: Session) -> None:
    a, b = ClassicMember(s, "a"), ClassicMember(s, "b")
    join = a.entering("a joins")
    await s.until("PreparingRebalance", 1)
    await b.enter("b joins")
    await join
    await s.describe("completing")
    await b.heartbeat("heartbeat while completing")
    await b.join("an unchanged follower")
    await a.join("an unchanged leader")
    sync = b.syncing("b waits for the leader")
    b2 = ClassicMember(s, "b2")
    b2.member_id, b2.protocols = b.member_id, [("range", subscription("t", "u"))]
    join = b2.joining("a changed follower, elsewhere")
    await sync
    await s.until("PreparingRebalance")
    await a.sync("too late")
    await a.join("a joins again")
    await join
    await s.describe("completing again")


@group_case
async def rejoin_while_preparing(s: Session) -> None:
    a, b, c, d = (ClassicMember(s, name) for name in "abcd")
    await stable(s, a, b)
    joins = [c.entering("c joins")]
    await s.until("PreparingRebalance", 3)
    await a.heartbeat("a hears of it")
    joins.append(d.entering("d joins"))
    await s.until("PreparingRebalance", 4)
    await s.describe("preparing")
    await a.sync("a syncs")
    joins.append(b.joining("b joins again"))
    await a.join("a joins again")
    for join in joins:
        await join
    await s.describe("completing")


@group_case
async def wrong_generations_and_members(s: Session) -> None:
    a = ClassicMember(s, "a")
    for what in ("no group", "a group"):
        await a.heartbeat(f"heartbeat, {what}", member_id="nobody", generation_id=1)
        await a.sync(f"sync, {what}", member_id="nobody", generation_id=1)
        await a.leave(f"leave, {what}", member_id="nobody", version=0)
        if what == "no group":
            await stable(s, a)
    await a.heartbeat("empty group id", group_id="")
    await a.sync("sync, empty group id", group_id="")
    await a.leave("leave, empty group id", group_id="")
    await a.leave("leave, empty group id, version 0", group_id="", version=0)
    await a.heartbeat("next generation", generation_id=2)
    await a.heartbeat("no generation", generation_id=-1)
    await a.sync("sync, next generation", generation_id=2)
    await a.sync("sync, no generation", generation_id=-1)
    await a.heartbeat("empty member id", member_id="")
    await a.sync("sync, empty member id", member_id="")
    await a.heartbeat("an instance that is none", group_instance_id="one")
    await a.sync("sync, an instance that is none", group_instance_id="one")
    await a.heartbeat("still there")


@group_case
async def session_expires(s: Session) -> None:
    a = ClassicMember(s, "a")
    b = ClassicMember(s, "b", session_ms=SHORT_MS)
    await stable(s, a, b)
    await a.heartbeat_until(REBALANCE_IN_PROGRESS)
    await s.describe("b is gone")
    await b.heartbeat("b is not known any more")
    await a.join("a joins again")
    await a.sync("a alone", {a: b"all"})
    await s.describe("stable again")


@group_case
async def rebalance_times_out(s: Session) -> None:
    a = ClassicMember(s, "a", rebalance_ms=SHORT_MS)
    b = ClassicMember(s, "b", rebalance_ms=SHORT_MS)
    await stable(s, a, b)
    c = ClassicMember(s, "c", rebalance_ms=SHORT_MS)
    join = c.entering("c joins")
    await s.until("PreparingRebalance", 3)
    await a.join("a joins, and b does not")
    await join
    await b.heartbeat("b is out")
    await s.describe("without b")


@group_case
async def rebalance_times_out_for_the_leader(s: Session) -> None:
    """Who leads then of several is chance in Kafka, so there is one."""
    a = ClassicMember(s, "a", rebalance_ms=SHORT_MS)
    await stable(s, a)
    b = ClassicMember(s, "b", rebalance_ms=SHORT_MS)
    await b.enter("b joins, and a does not")
    await a.heartbeat("a is out")
    await s.describe("b leads")


@group_case
async def sync_times_out(s: Session) -> None:
    a = ClassicMember(s, "a", rebalance_ms=SHORT_MS)
    b = ClassicMember(s, "b", rebalance_ms=SHORT_MS)
    join = a.entering("a joins")
    await s.until("PreparingRebalance", 1)
    await b.enter("b joins")
    await join
    await b.sync("b syncs, the leader does not")
    await a.heartbeat("the leader is out")
    await s.describe("b has to join again")
    await b.join("b joins again")
    await b.sync("b leads", {b: b"all"})


@group_case
async def group_is_full(s: Session) -> None:
    members = [ClassicMember(s, name) for name in "abcd"]
    await stable(s, *members)
    e = ClassicMember(s, "e")
    await e.join("one too many, for an id")
    await e.join("one too many, version 3", version=3)
    await e.join("one too many, static", group_instance_id="one")
    await members[1].join("one that is in may stay")


@group_case
async def leave_in_many_ways(s: Session) -> None:
    a, b = ClassicMember(s, "a"), ClassicMember(s, "b")
    c = ClassicMember(s, "c", instance="one")
    d = ClassicMember(s, "d", instance="two")
    await stable(s, a, b, c, d)
    await leave_many(s, "nobody", ())
    await leave_many(
        s, "unknown ones", [("nobody", None), ("", "none"), ("nobody", "none"), ("nobody", "one")]
    )
    await leave_many(s, "neither id", [("", None)])
    await s.describe("all there", version=5)
    await leave_many(s, "by instance alone", [("", "one")])
    await leave_many(s, "one that is there and one that is not", [(b.member_id, None), (b.member_id, None)])
    await d.leave("d leaves")
    await a.leave("version 2", version=2)
    await a.leave("version 2 again", version=2)
    await s.describe("empty", version=5)


async def leave_many(s: Session, label: str, members: Sequence[tuple[str, str | None]]) -> None:
    """As an administrator does it."""
    gone = [MemberIdentity(member_id, instance_id) for member_id, instance_id in members]
    await s.ask(label, LeaveGroupRequest(group_id=s.group, members=gone), 5)


@group_case
async def leave_while_preparing(s: Session) -> None:
    a, b, c = (ClassicMember(s, name) for name in "abc")
    await stable(s, a, b)
    join = c.entering("c joins")
    await s.until("PreparingRebalance", 3)
    second = a.joining("a joins again")
    await b.leave("b leaves, and all others wait")
    await second
    await join
    await s.describe("completing")
    await c.leave("c leaves while completing")
    await a.sync("too late")
    await s.describe("preparing again")
    await a.leave("a leaves, the last")
    await s.describe("empty")
    await s.list_own("listed")


@group_case
async def leave_while_waiting_for_the_first_generation(s: Session) -> None:
    a, b = ClassicMember(s, "a"), ClassicMember(s, "b")
    join = a.entering("a joins")
    await s.until("PreparingRebalance", 1)
    other = ClassicMember(s, "a2")
    other.member_id = a.member_id
    await other.leave("a leaves, by another connection")
    await join
    await s.until("Empty")
    await s.describe("empty")
    await b.enter("b joins")


@group_case
async def join_while_completing(s: Session) -> None:
    a, b, c = (ClassicMember(s, name) for name in "abc")
    join = a.entering("a joins")
    await s.until("PreparingRebalance", 1)
    await b.enter("b joins")
    await join
    sync = b.syncing("b waits for the leader")
    join = c.entering("c joins")
    await s.until("PreparingRebalance", 3)
    await sync
    await a.heartbeat("a hears of it")
    second = a.joining("a joins again")
    await b.join("b joins again")
    await second
    await join
    await synced(a, b, c)
    await s.describe("stable")


@group_case
async def assignments_of_all_kinds(s: Session) -> None:
    a, b, c = (ClassicMember(s, name) for name in "abc")
    join = a.entering("a joins")
    await s.until("PreparingRebalance", 1)
    second = b.entering("b joins")
    await s.until("PreparingRebalance", 2)
    await c.enter("c joins")
    await join
    await second
    stranger = ClassicMember(s, "x")
    stranger.member_id = "nobody"
    follower = b.syncing("a follower that assigns", given={a: b"no", b: b"no"})
    await a.sync("the leader forgets c, and thinks of nobody", {a: b"a", b: b"b", stranger: b"x"})
    await follower
    await c.sync("c has nothing")
    await s.describe("stable")
    await a.sync("the leader, version 4", version=4, protocol_type=None, protocol_name=None)
    await a.sync("the leader, version 0", version=0, group_instance_id=None)
    await a.sync("half a protocol", protocol_name=None)
    await a.sync("the other half", protocol_type=None)
    await a.heartbeat("lives")
