"""The rights of a principal: Kafka's StandardAuthorizer, on an index whose answers do not depend on how many
ACLs are.

A resource is looked up by its name, by each of its beginnings that has the length of a prefix that some ACL
has, and by `*`. Behind each pattern stand principals with hosts, and behind these two sets of bits, one per
operation: allowed and denied. The operations that an ALLOW implies are among its bits; a DENY implies
nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from dray.broker.security.principals import WILDCARD
from dray.kafka.acls import (
    ANYTHING,
    SUPPORTED,
    AclBinding,
    AclFilter,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
    as_java_writes,
)

_ALL: Final = sum(1 << operation for operation in AclOperation)
_IMPLIED: Final = {
    **dict.fromkeys(
        (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
        1 << AclOperation.DESCRIBE,
    ),
    AclOperation.ALTER_CONFIGS: 1 << AclOperation.DESCRIBE_CONFIGS,
}
_REMEMBERED: Final = 20_000
_LONGEST_REMEMBERED: Final = 256
"""Names come from clients: what is remembered of them is bounded in number and in length."""


def _bits(operation: AclOperation, permission: Permission) -> int:
    if operation is AclOperation.ALL:
        return _ALL
    implied = _IMPLIED.get(operation, 0) if permission is Permission.ALLOW else 0
    return 1 << operation | implied


class _Entry:
    """The rights of one principal and host under one pattern."""

    __slots__ = ("allowed", "bindings", "denied")

    def __init__(self) -> None:
        self.bindings: tuple[AclBinding, ...] = ()
        self.allowed = self.denied = 0

    def hold(self, bindings: tuple[AclBinding, ...]) -> None:
        self.bindings = bindings
        self.allowed = self.denied = 0
        for binding in self.bindings:
            bits = _bits(binding.operation, binding.permission)
            if binding.permission is Permission.ALLOW:
                self.allowed |= bits
            else:
                self.denied |= bits


_Pattern = dict[tuple[str, str], _Entry]  # by principal and host


class _OfType:
    """The ACLs of one type of resource."""

    __slots__ = ("lengths", "literal", "prefixed", "prefixes")

    def __init__(self) -> None:
        self.literal: dict[str, _Pattern] = {}
        self.prefixed: dict[str, _Pattern] = {}
        self.lengths: Counter[int] = Counter()
        self.prefixes: list[int] = []  # the lengths, shortest first

    def patterns(self, name: str) -> Iterator[_Pattern]:
        found = self.literal.get(name)
        if found is not None:
            yield found
        size = len(name)
        for length in self.prefixes:
            if length > size:
                break
            found = self.prefixed.get(name[:length])
            if found is not None:
                yield found
        found = self.literal.get(ANYTHING)
        if found is not None and name != ANYTHING:
            yield found


class AclIndex:
    """Changes one binding at a time; what is asked in between sees each change whole."""

    def __init__(self, bindings: Iterable[AclBinding] = ()) -> None:
        self.version = 0
        self._types: dict[AclResourceType, _OfType] = {}
        self._bindings: dict[AclBinding, None] = {}
        self._of_principal: dict[tuple[AclResourceType, str], set[AclBinding]] = {}
        for binding in bindings:
            self.add(binding)

    def __len__(self) -> int:
        return len(self._bindings)

    def __contains__(self, binding: AclBinding) -> bool:
        return binding in self._bindings

    def bindings(self) -> list[AclBinding]:
        """All that there are now, those that allow nothing (`store._place_holder`) among them."""
        return list(self._bindings)

    def matching(self, wanted: AclFilter) -> list[AclBinding]:
        return matching(self._bindings, wanted)

    def add(self, binding: AclBinding) -> None:
        if binding in self._bindings:
            return
        self._bindings[binding] = None
        self._of_principal.setdefault((binding.resource_type, binding.principal), set()).add(binding)
        of_type = self._types.setdefault(binding.resource_type, _OfType())
        patterns = of_type.literal
        if binding.pattern_type is PatternType.PREFIXED:
            patterns = of_type.prefixed
            if binding.name not in patterns:
                of_type.lengths[len(binding.name)] += 1
                of_type.prefixes = sorted(of_type.lengths)
        pattern = patterns.setdefault(binding.name, {})
        entry = pattern.setdefault(_who_and_where(binding), _Entry())
        entry.hold((*entry.bindings, binding))
        self.version += 1

    def remove(self, binding: AclBinding) -> None:
        if binding not in self._bindings:
            return
        del self._bindings[binding]
        mine = self._of_principal[binding.resource_type, binding.principal]
        mine.discard(binding)
        if not mine:
            del self._of_principal[binding.resource_type, binding.principal]
        of_type = self._types[binding.resource_type]
        is_prefixed = binding.pattern_type is PatternType.PREFIXED
        patterns = of_type.prefixed if is_prefixed else of_type.literal
        pattern = patterns[binding.name]
        entry = pattern[_who_and_where(binding)]
        entry.hold(tuple(each for each in entry.bindings if each != binding))
        self.version += 1
        if entry.bindings:
            return
        del pattern[_who_and_where(binding)]
        if not pattern:
            del patterns[binding.name]
            if is_prefixed:
                of_type.lengths[len(binding.name)] -= 1
                of_type.lengths += Counter()  # without those that are 0
                of_type.prefixes = sorted(of_type.lengths)

    def rights(self, principal: str, host: str, kind: AclResourceType, name: str) -> tuple[int, int, bool]:
        """Bits that are allowed, bits that are denied, and whether any ACL names this resource at all."""
        allowed = denied = 0
        of_type = self._types.get(kind)
        if of_type is None:
            return 0, 0, False
        named = False
        asking = [(who, where) for who in (principal, WILDCARD) for where in (host, ANYTHING)]
        for pattern in of_type.patterns(name):
            named = True
            for who_and_where in asking:
                entry = pattern.get(who_and_where)
                if entry is not None:
                    allowed |= entry.allowed
                    denied |= entry.denied
        return allowed, denied, named

    def of_principal(self, principal: str, host: str, kind: AclResourceType) -> Iterator[AclBinding]:
        for who in {principal, WILDCARD}:
            for binding in self._of_principal.get((kind, who), ()):
                if _who_and_where(binding)[1] in (host, ANYTHING):
                    yield binding


def _who_and_where(binding: AclBinding) -> tuple[str, str]:
    """An address counts however it was written. With Kafka only Java's spelling holds: a DENY in any other is
    none."""
    return binding.principal, as_java_writes(binding.host)


def matching(bindings: Iterable[AclBinding], wanted: AclFilter) -> list[AclBinding]:
    return [
        binding
        for binding in bindings
        if wanted.matches(binding) and binding.operation is not AclOperation.UNKNOWN
    ]


Decided = list[dict[str, int]]
"""Of one principal and host, by the number of a kind of resource and by name: the bits that are allowed. (An
enumeration's hash is slow; its number as an index is not.)"""


class Authorizer:
    """Decides. It remembers what it decided until an ACL changes, or until it is too much."""

    def __init__(
        self, acls: AclIndex, super_users: Iterable[str] = (), *, allow_if_no_acl: bool = False
    ) -> None:
        self._acls = acls
        self._super_users = frozenset(super_users)
        self._allow_if_no_acl = allow_if_no_acl
        self._decided: dict[tuple[str, str], Decided] = {}
        self._on_some: dict[tuple[str, str, AclOperation, AclResourceType], bool] = {}
        self._remembered = 0
        self._version = acls.version
        self._generation = 0

    def allowed(
        self, principal: str, host: str, operation: AclOperation, kind: AclResourceType, name: str
    ) -> bool:
        return bool(self.bits(principal, host, kind, name) >> operation & 1)

    def operations(self, principal: str, host: str, kind: AclResourceType, name: str) -> int:
        """The bit field of what may be done to the resource, as answers have it."""
        bits = self.bits(principal, host, kind, name)
        return sum(1 << operation for operation in SUPPORTED[kind] if bits >> operation & 1)

    def allowed_on_some(
        self, principal: str, host: str, operation: AclOperation, kind: AclResourceType
    ) -> bool:
        """On at least one resource of this type that may exist: an ALLOW that no DENY covers whole. Kafka's
        `authorizeByResourceType`, which asks for one name first, and does not count what an ALLOW implies.
        Remembered as all decisions are: it goes through all ACLs of the principal."""
        if self.allowed(principal, host, operation, kind, "hardcode"):
            return True
        asked = principal, host, operation, kind
        found = self._on_some.get(asked)
        if found is None:
            self._make_room()
            found = self._on_some[asked] = self._is_allowed_on_some(*asked)
        return found

    def _is_allowed_on_some(
        self, principal: str, host: str, operation: AclOperation, kind: AclResourceType
    ) -> bool:
        denied: set[tuple[PatternType, str]] = set()
        granted: set[tuple[PatternType, str]] = set()
        for binding in self._acls.of_principal(principal, host, kind):
            if binding.operation in (operation, AclOperation.ALL):
                into = granted if binding.permission is Permission.ALLOW else denied
                into.add((binding.pattern_type, binding.name))
        if (PatternType.LITERAL, ANYTHING) in denied:
            return False
        if (PatternType.LITERAL, ANYTHING) in granted:
            return True
        return any(not _is_covered(pattern, name, denied) for pattern, name in granted)

    def generation(self) -> int:
        """Another number when nothing that was decided holds any more."""
        if self._version != self._acls.version:
            self._version = self._acls.version
            self._forget()
        return self._generation

    def decided(self, principal: str, host: str) -> Decided:
        """The decisions for this client, past and to come, as long as the generation is the same. To look in
        here first is for those who ask often: else `bits` knows."""
        self.generation()
        found = self._decided.get((principal, host))
        if found is None:
            self._make_room()
            found = self._decided[principal, host] = [{} for _ in AclResourceType]
        return found

    def bits(self, principal: str, host: str, kind: AclResourceType, name: str) -> int:
        """One for each operation that is allowed."""
        decided = self.decided(principal, host)[kind]
        bits = decided.get(name)
        if bits is None:
            allowed, denied, named = self._acls.rights(principal, host, kind, name)
            bits = allowed & ~denied
            if principal in self._super_users or (not named and self._allow_if_no_acl):
                bits = _ALL
            if len(name) <= _LONGEST_REMEMBERED:
                self._make_room()
                decided[name] = bits
        return bits

    def _make_room(self) -> None:
        if self._remembered >= _REMEMBERED:
            self._forget()
        self._remembered += 1

    def _forget(self) -> None:
        self._decided.clear()
        self._on_some.clear()
        self._remembered = 0
        self._generation += 1


def _is_covered(pattern: PatternType, name: str, denied: set[tuple[PatternType, str]]) -> bool:
    if pattern is PatternType.LITERAL and (PatternType.LITERAL, name) in denied:
        return True
    return any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))
