"""ACLs: StandardAuthorizer's decision, against a plain reading of its rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.broker.security.acls.authorization import host_of
from dray.broker.security.acls.decision import AclIndex, Authorizer
from dray.kafka.acls import (
    CLUSTER_NAME,
    SUPPORTED,
    AclBinding,
    AclFilter,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
    fault_of,
)

TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
Op = AclOperation


def acl(
    name: str = "orders",
    operation: AclOperation = Op.READ,
    permission: Permission = ALLOW,
    pattern: PatternType = LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    kind: AclResourceType = TOPIC,
) -> AclBinding:
    return AclBinding(kind, pattern, name, principal, host, operation, permission)


def may(
    bindings: Sequence[AclBinding],
    operation: AclOperation = Op.READ,
    name: str = "orders",
    principal: str = "User:alice",
    host: str = "10.0.0.1",
    *,
    open_by_default: bool = False,
) -> bool:
    authorizer = Authorizer(AclIndex(bindings), ["User:root"], allow_if_no_acl=open_by_default)
    return authorizer.allowed(principal, host, operation, TOPIC, name)


def test_without_an_acl_nobody_but_super_users() -> None:
    assert not may([])
    assert may([], principal="User:root")
    assert may([acl(permission=DENY, operation=Op.ALL, principal="User:*")], principal="User:root")


def test_allow_if_no_acl_is_for_resources_that_none_names() -> None:
    assert may([], open_by_default=True)
    assert may([acl(name="other")], open_by_default=True)
    assert not may([acl(principal="User:bob")], open_by_default=True)
    assert not may([acl(principal="User:bob", name="ord", pattern=PREFIXED)], open_by_default=True)
    assert not may([acl(principal="User:bob", name="*")], open_by_default=True)


@pytest.mark.parametrize(
    "binding",
    [
        acl(),
        acl(operation=Op.ALL),
        acl(name="*"),
        acl(name="ord", pattern=PREFIXED),
        acl(name="orders", pattern=PREFIXED),
        acl(principal="User:*"),
        acl(host="10.0.0.1"),
    ],
)
def test_what_allows(binding: AclBinding) -> None:
    assert may([binding])


@pytest.mark.parametrize(
    "binding",
    [
        acl(operation=Op.WRITE),
        acl(name="Orders"),
        acl(name="order"),
        acl(name="orders2", pattern=PREFIXED),
        acl(name="*", pattern=PREFIXED),
        acl(principal="User:Alice"),
        acl(principal="Group:alice"),
        acl(host="10.0.0.2"),
        acl(kind=GROUP),
    ],
)
def test_what_does_not(binding: AclBinding) -> None:
    assert not may([binding])


@pytest.mark.parametrize("deny", [acl(permission=DENY), acl(permission=DENY, name="*", operation=Op.ALL)])
@pytest.mark.parametrize("allow", [acl(), acl(name="o", pattern=PREFIXED, operation=Op.ALL)])
def test_deny_over_allow(allow: AclBinding, deny: AclBinding) -> None:
    assert not may([allow, deny])
    assert not may([deny, allow])


def test_what_an_allow_implies_and_a_deny_does_not() -> None:
    for operation in (Op.READ, Op.WRITE, Op.DELETE, Op.ALTER):
        assert may([acl(operation=operation)], Op.DESCRIBE)
        assert may([acl(operation=Op.DESCRIBE), acl(operation=operation, permission=DENY)], Op.DESCRIBE)
    assert not may([acl(operation=Op.CREATE)], Op.DESCRIBE)
    assert may([acl(operation=Op.ALTER_CONFIGS)], Op.DESCRIBE_CONFIGS)
    assert not may([acl(operation=Op.ALTER)], Op.DESCRIBE_CONFIGS)
    assert not may([acl(operation=Op.DESCRIBE)], Op.READ)


@pytest.mark.parametrize("written", ["::1", "0:0:0:0:0:0:0:1", "0::0001"])
def test_an_address_counts_however_it_was_written(written: str) -> None:
    peer = host_of("[::1]:4000")
    denied = [acl(host="*"), acl(host=written, permission=DENY)]
    for acls, allowed in (([acl(host=written)], True), (denied, False)):
        index = AclIndex(acls)
        authorizer = Authorizer(index)
        assert authorizer.allowed("User:alice", peer, Op.READ, TOPIC, "orders") is allowed
        assert authorizer.allowed_on_some("User:alice", peer, Op.READ, TOPIC) is allowed
        assert not authorizer.allowed("User:bob", peer, Op.READ, TOPIC, "orders")
        assert index.matching(AclFilter(host=written)) == acls[-1:], "shown as it was written"
    both = AclIndex([acl(host="::1"), acl(host="0::1")])
    both.remove(acl(host="::1"))
    assert Authorizer(both).allowed("User:alice", peer, Op.READ, TOPIC, "orders")


# --- a plain reading

NAMES = ["a", "ab", "abc", "b", "*", "a*"]
WHO = ["User:x", "User:y", "User:*"]
HOSTS = ["1", "2", "*"]
OPERATIONS = [op for op in Op if op not in (Op.UNKNOWN, Op.ANY)]
ASKED = [op for op in OPERATIONS if op is not Op.ALL]

bindings = st.builds(
    acl,
    st.sampled_from(NAMES),
    st.sampled_from(OPERATIONS),
    st.sampled_from([ALLOW, DENY]),
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from(WHO),
    st.sampled_from(HOSTS),
    st.sampled_from([TOPIC, GROUP]),
)


def read_plainly(
    acls: Sequence[AclBinding], open_by_default: bool, who: str, host: str, op: AclOperation, name: str
) -> bool:
    named = [
        each
        for each in acls
        if each.resource_type is TOPIC
        and (
            (each.pattern_type is LITERAL and each.name in (name, "*"))
            or (each.pattern_type is PREFIXED and name.startswith(each.name))
        )
    ]
    mine = [each for each in named if each.principal in (who, "User:*") and each.host in (host, "*")]
    if any(each.permission is DENY and each.operation in (op, Op.ALL) for each in mine):
        return False
    enough = {op, Op.ALL}
    if op is Op.DESCRIBE:
        enough |= {Op.READ, Op.WRITE, Op.DELETE, Op.ALTER}
    if op is Op.DESCRIBE_CONFIGS:
        enough.add(Op.ALTER_CONFIGS)
    if any(each.permission is ALLOW and each.operation in enough for each in mine):
        return True
    return open_by_default and not named


@settings(max_examples=300, deadline=None)
@given(
    st.lists(bindings, max_size=8),
    st.booleans(),
    st.sampled_from(["User:x", "User:y", "User:z"]),
    st.sampled_from(["1", "3"]),
    st.sampled_from(ASKED),
    st.sampled_from(NAMES),
)
def test_the_index_decides_as_the_rules_read(
    acls: list[AclBinding], open_by_default: bool, who: str, host: str, op: AclOperation, name: str
) -> None:
    authorizer = Authorizer(AclIndex(acls), allow_if_no_acl=open_by_default)
    for _ in range(2):  # decided, and remembered
        assert authorizer.allowed(who, host, op, TOPIC, name) == read_plainly(
            acls, open_by_default, who, host, op, name
        )


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(bindings, st.booleans()), max_size=30))
def test_what_was_removed_is_as_if_it_had_never_been(changes: list[tuple[AclBinding, bool]]) -> None:
    index = AclIndex()
    authorizer = Authorizer(index, allow_if_no_acl=True)
    left: set[AclBinding] = set()
    for binding, there in changes:
        (index.add if there else index.remove)(binding)
        (left.add if there else left.discard)(binding)
        for name in NAMES:
            assert authorizer.allowed("User:x", "1", Op.READ, TOPIC, name) == read_plainly(
                list(left), True, "User:x", "1", Op.READ, name
            )
    assert set(index.matching(AclFilter())) == left
    assert len(index) == len(left)
    for binding in left:
        index.remove(binding)
    assert index._types == {} or all(
        not of_type.literal and not of_type.prefixed and not of_type.prefixes
        for of_type in index._types.values()
    )


def some_plainly(acls: Sequence[AclBinding], who: str, host: str, op: AclOperation) -> bool:
    """Kafka's `authorizeByResourceType`, written down step by step."""
    if read_plainly(acls, False, who, host, op, "hardcode"):
        return True
    mine = [
        each
        for each in acls
        if each.resource_type is TOPIC
        and each.principal in (who, "User:*")
        and each.host in (host, "*")
        and each.operation in (op, Op.ALL)
    ]
    denied = [each for each in mine if each.permission is DENY]
    if any(each.pattern_type is LITERAL and each.name == "*" for each in denied):
        return False
    for each in mine:
        if each.permission is DENY:
            continue
        if each.pattern_type is LITERAL and each.name == "*":
            return True
        covered = any(
            (other.pattern_type is PREFIXED and each.name.startswith(other.name))
            or (other.pattern_type is LITERAL and each.pattern_type is LITERAL and other.name == each.name)
            for other in denied
        )
        if not covered:
            return True
    return False


@settings(max_examples=300, deadline=None)
@given(
    st.lists(bindings, max_size=8),
    st.sampled_from(["User:x", "User:z"]),
    st.sampled_from([Op.WRITE, Op.READ]),
)
def test_on_some_topic(acls: list[AclBinding], who: str, op: AclOperation) -> None:
    assert Authorizer(AclIndex(acls)).allowed_on_some(who, "1", op, TOPIC) == some_plainly(acls, who, "1", op)


def test_an_allow_that_a_deny_covers_is_none() -> None:
    """The name that is tried first ("hardcode") must not settle it: these are about others."""

    def some(*acls: AclBinding) -> bool:
        return Authorizer(AclIndex(acls)).allowed_on_some("User:alice", "1", Op.READ, TOPIC)

    assert some(acl("abc"))
    assert not some(acl("abc"), acl("ab", permission=DENY, pattern=PREFIXED))
    assert not some(acl("abc", pattern=PREFIXED), acl("ab", permission=DENY, pattern=PREFIXED))
    assert not some(acl("abc"), acl("abc", permission=DENY))
    assert some(acl("abc", pattern=PREFIXED), acl("abc", permission=DENY))
    assert some(acl("abc", pattern=PREFIXED), acl("abcd", permission=DENY, pattern=PREFIXED))
    assert not some(acl("abc"), acl("*", permission=DENY))


def test_the_bits_of_what_may_be_done() -> None:
    authorizer = Authorizer(AclIndex([acl(operation=Op.READ)]), ["User:root"])
    assert authorizer.operations("User:alice", "1", TOPIC, "orders") == 1 << Op.READ | 1 << Op.DESCRIBE
    assert authorizer.operations("User:bob", "1", TOPIC, "orders") == 0
    assert authorizer.operations("User:root", "1", TOPIC, "x") == sum(1 << op for op in SUPPORTED[TOPIC])
    assert (
        authorizer.operations("User:root", "1", AclResourceType.CLUSTER, CLUSTER_NAME) == 0b1_1111_1010_0000
    )


def test_names_of_clients_are_not_remembered_without_bound() -> None:
    authorizer = Authorizer(AclIndex([acl()]))
    for number in range(20_100):
        authorizer.allowed("User:alice", "1", Op.READ, TOPIC, f"t{number}")
    authorizer.allowed("User:alice", "1", Op.READ, TOPIC, "x" * 300)
    remembered = [name for of_kind in authorizer._decided.values() for names in of_kind for name in names]
    assert len(remembered) + len(authorizer._decided) <= 20_000
    assert all(len(name) <= 256 for name in remembered)


def test_a_decision_does_not_walk_through_all_acls() -> None:
    """Counted, not timed: how many patterns and entries a decision looks at, with 3 and with 30,000 ACLs."""

    def looked_at(count: int) -> int:
        bindings = [acl(f"topic-{number:05}", principal=f"User:{number % 100}") for number in range(count)]
        bindings += [acl(f"pre-{number:05}", pattern=PREFIXED) for number in range(count)]
        bindings += [acl("*", Op.WRITE, principal=f"User:w{number}") for number in range(count)]
        index = AclIndex(bindings)
        return sum(1 for _ in index._types[TOPIC].patterns("topic-00001")) + len(index._types[TOPIC].prefixes)

    assert looked_at(3) == looked_at(10_000)


# --- filters and faults


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (AclFilter(), True),
        (AclFilter(name="orders"), True),
        (AclFilter(name="ord"), False),
        (AclFilter(pattern_type=PatternType.MATCH, name="orders"), True),
        (AclFilter(pattern_type=PREFIXED), False),
        (AclFilter(principal="User:alice", host="*", operation=Op.READ, permission=ALLOW), True),
        (AclFilter(principal="User:bob"), False),
        (AclFilter(host="1"), False),
        (AclFilter(operation=Op.WRITE), False),
        (AclFilter(permission=DENY), False),
        (AclFilter(GROUP), False),
    ],
)
def test_filters(wanted: AclFilter, found: bool) -> None:
    assert wanted.matches(acl()) is found


def test_match_finds_what_would_apply() -> None:
    wanted = AclFilter(TOPIC, PatternType.MATCH, "orders")
    assert wanted.matches(acl("*"))
    assert wanted.matches(acl("ord", pattern=PREFIXED))
    assert not wanted.matches(acl("orders2", pattern=PREFIXED))
    assert not wanted.matches(acl("*", pattern=PREFIXED))
    assert not AclFilter(TOPIC, PatternType.ANY, "orders").matches(acl("*"))


@pytest.mark.parametrize(
    "binding",
    [
        acl(kind=AclResourceType.ANY),
        acl(pattern=PatternType.MATCH),
        acl(operation=Op.ANY),
        acl(permission=Permission.ANY),
        acl(name=""),
        acl(principal="alice"),
        acl(host=""),
        acl(kind=AclResourceType.CLUSTER),
        acl(name="x" * 1025),
    ],
)
def test_what_is_no_acl(binding: AclBinding) -> None:
    assert fault_of(binding) is not None


def test_what_is_one() -> None:
    assert fault_of(acl()) is None
    assert fault_of(acl(CLUSTER_NAME, kind=AclResourceType.CLUSTER)) is None
    assert fault_of(acl(principal="User:")) is None, "as in Kafka"


def test_clients_are_not_remembered_without_bound() -> None:
    authorizer = Authorizer(AclIndex())
    for number in range(30_000):
        authorizer.allowed(f"User:{number}", "1", Op.READ, TOPIC, "t")
    remembered = [name for of_kind in authorizer._decided.values() for names in of_kind for name in names]
    assert 0 < len(remembered) + len(authorizer._decided) <= 20_000


def test_what_a_client_is_remembered_by_ends_with_the_generation() -> None:
    index = AclIndex()
    authorizer = Authorizer(index)
    before, decided = authorizer.generation(), authorizer.decided("User:alice", "1")
    assert not authorizer.allowed("User:alice", "1", Op.READ, TOPIC, "orders")
    assert authorizer.decided("User:alice", "1") is decided
    index.add(acl(operation=Op.READ))
    assert authorizer.generation() != before
    assert authorizer.allowed("User:alice", "1", Op.READ, TOPIC, "orders")
    assert authorizer.decided("User:alice", "1") is not decided


def test_what_is_allowed_on_some_is_remembered_until_an_acl_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    index = AclIndex([acl("abc")])
    authorizer = Authorizer(index)
    looked: list[str] = []
    of_principal = AclIndex.of_principal

    def noted(self: AclIndex, principal: str, *about: Any) -> Iterator[AclBinding]:
        looked.append(principal)
        return of_principal(self, principal, *about)

    monkeypatch.setattr(AclIndex, "of_principal", noted)
    for _ in range(3):
        assert authorizer.allowed_on_some("User:alice", "1", Op.READ, TOPIC)
    assert looked == ["User:alice"], "it goes through all ACLs of the principal"
    index.remove(acl("abc"))
    assert not authorizer.allowed_on_some("User:alice", "1", Op.READ, TOPIC)
