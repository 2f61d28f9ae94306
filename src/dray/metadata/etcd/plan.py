"""One write of the contract as one etcd transaction.

etcd judges all comparisons of a transaction before it changes anything, and refuses to touch a key
twice. The contract lets each operation see what the earlier ones of its write did. So the operations on one
key are played through here, for every state the key may be in (absent, at one of the versions they
expect, or anything else), and what remains is one change per state, chosen by a chain of nested
transactions. The answer says which branch each chain took, and so what became of each operation.

A range to delete is cut around the keys that the write also touches singly; these get it as one more
operation of their own.

The servers limit the operations of a transaction (`--max-txn-ops`, 128) per level of nesting, and a level
takes what it uses from those inside it. Changes are therefore spread over two levels, as in a square:
128 is room for far more than a thousand.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Final

from dray.metadata.contract import ABSENT, ANY, Delete, DeleteRange, Expectation, Operation, Outcome, Put
from dray.metadata.etcd.keys import Keyspace, revision_and_place, stored_value, value_bounds, version_of
from dray.metadata.etcd.wire import etcd_pb2 as wire

# States of a key. A version is its own name.
_ABSENT: Final = 0
_ANYTHING_ELSE: Final = -1
_JUST_PUT: Final = -2

_NOTHING: Final = -1
_DELETED: Final = -2

_VERSION_COMPARISONS: Final = 3

Step = tuple[int, Put | Delete | DeleteRange]
_Adder = Callable[[], wire.RequestOp]


@dataclass(frozen=True, slots=True)
class _Ending:
    """The end of a key: the place of the put that stays, `_DELETED` or `_NOTHING`; and which operations
    applied."""

    change: int
    applied: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class _Branch:
    state: int
    ending: _Ending


class _KeyPlan:
    """All operations of a write on one key."""

    def __init__(self, key: str, steps: list[Step]) -> None:
        self.key = key
        self.steps = steps
        self.otherwise = _play(steps, _ANYTHING_ELSE)
        endings = [_Branch(state, _play(steps, state)) for state in _states(steps)]
        self.branches = [branch for branch in endings if branch.ending != self.otherwise]

    @property
    def asks(self) -> bool:
        """Whether there is anything to send: an expectation that nothing can meet changes nothing."""
        return bool(self.branches) or self.otherwise.change != _NOTHING

    @property
    def depth(self) -> int:
        """How much of the servers' limit the chain takes."""
        return sum(1 if branch.state == _ABSENT else _VERSION_COMPARISONS for branch in self.branches)

    def supersedes(self) -> bool:
        """Whether a put may be undone or replaced by a later operation of the same write."""
        return len(self.steps) > 1 and any(
            applied and isinstance(step, Put) and place != ending.change
            for ending in (self.otherwise, *(branch.ending for branch in self.branches))
            for applied, (place, step) in zip(ending.applied, self.steps, strict=True)
        )

    def write_to(self, add: _Adder, stored_key: bytes, lease: int) -> None:
        """Messages are filled where they stay: to build them apart would copy each once per level."""
        for branch in self.branches:
            chosen = add().request_txn
            _compare(chosen, stored_key, branch.state)
            self._write_change(branch.ending, chosen.success.add, stored_key, lease)
            add = chosen.failure.add
        self._write_change(self.otherwise, add, stored_key, lease)

    def _write_change(self, ending: _Ending, add: _Adder, stored_key: bytes, lease: int) -> None:
        if ending.change == _NOTHING:
            return
        if ending.change == _DELETED:
            add().request_delete_range.key = stored_key
            return
        put = next(step for place, step in self.steps if place == ending.change)
        assert isinstance(put, Put)
        request = add().request_put
        request.key = stored_key
        request.value = stored_value(put.value, ending.change)
        request.lease = lease

    def ending(self, response: wire.ResponseOp | None) -> _Ending:
        for branch in self.branches:
            assert response is not None
            chosen = response.response_txn
            if chosen.succeeded:
                return branch.ending
            response = chosen.responses[0] if chosen.responses else None
        return self.otherwise


class TransactionPlan:
    """`request` is what to send; `outcomes` reads its answer."""

    def __init__(
        self, domain: int, operations: Sequence[Operation], keyspace: Keyspace, lease: int, most: int
    ) -> None:
        self._operations = operations
        keys = _touched(operations)
        self._keys = [_KeyPlan(key, steps) for key, steps in _steps_by_key(operations, keys).items()]
        gaps = list(_gaps(operations, keys))
        # Versions come from revisions, and a write of which nothing remains has none of its own.
        ticks = any(plan.supersedes() for plan in self._keys)
        count = sum(plan.asks for plan in self._keys) + len(gaps) + ticks
        depth = max((plan.depth for plan in self._keys), default=0)
        self._levelled = count + depth > most
        if self._levelled and 2 * _side(count) + depth > most:
            raise ValueError(f"{count} changes, {depth} deep: too much for one transaction")

        self.request = wire.TxnRequest()
        add = _two_levels(self.request, _side(count)) if self._levelled else self.request.success.add
        for plan in self._keys:
            if plan.asks:
                plan.write_to(add, keyspace.key(domain, plan.key), lease)
        for start, end in gaps:
            removal = add().request_delete_range
            removal.key, removal.range_end = keyspace.key(domain, start), keyspace.key(domain, end)
        if ticks:
            tick = add().request_put
            tick.key, tick.value = keyspace.tick, stored_value(b"", 0)

    def outcomes(self, response: wire.TxnResponse) -> list[Outcome]:
        """One per operation, in their order."""
        revision = response.header.revision
        outcomes = [Outcome(True)] * len(self._operations)  # ranges always apply
        answers = _from_two_levels(response.responses) if self._levelled else iter(response.responses)
        for plan in self._keys:
            ending = plan.ending(next(answers) if plan.asks else None)
            for (place, step), applied in zip(plan.steps, ending.applied, strict=True):
                if isinstance(step, Put) and applied:
                    outcomes[place] = Outcome(True, version_of(revision, place))
                elif not applied:
                    outcomes[place] = Outcome(False)
        return outcomes


def _touched(operations: Sequence[Operation]) -> list[str]:
    """The keys that are put or deleted singly, in order."""
    return sorted({operation.key for operation in operations if not isinstance(operation, DeleteRange)})


def _within(keys: list[str], removal: DeleteRange) -> list[str]:
    return keys[bisect_left(keys, removal.start) : bisect_left(keys, removal.end)]


def _steps_by_key(operations: Sequence[Operation], keys: list[str]) -> dict[str, list[Step]]:
    steps: dict[str, list[Step]] = {key: [] for key in keys}
    for place, operation in enumerate(operations):
        if isinstance(operation, DeleteRange):
            for key in _within(keys, operation):
                steps[key].append((place, operation))
        else:
            steps[operation.key].append((place, operation))
    return steps


def _gaps(operations: Sequence[Operation], keys: list[str]) -> Iterator[tuple[str, str]]:
    """The parts of the deleted ranges that lie between the keys that are touched singly."""
    for operation in operations:
        if isinstance(operation, DeleteRange):
            start = operation.start
            for key in _within(keys, operation):
                if start < key:
                    yield start, key
                start = key + "\0"
            if start < operation.end:
                yield start, operation.end


def _states(steps: list[Step]) -> Iterable[int]:
    """Those in which the operations may end otherwise than in all the rest."""
    states: dict[int, None] = {}
    for _, step in steps:
        if isinstance(step, DeleteRange) or step.expect == ANY:
            continue
        if step.expect == ABSENT:
            states[_ABSENT] = None
        elif isinstance(step.expect, int) and revision_and_place(step.expect)[0] > 0:
            states[step.expect] = None  # no key was ever put at another
    return states


def _play(steps: list[Step], state: int) -> _Ending:
    change = _NOTHING
    applied = []
    for place, step in steps:
        meets = isinstance(step, DeleteRange) or _meets(state, step.expect)
        applied.append(meets)
        if meets:
            change = place if isinstance(step, Put) else _DELETED
            state = _JUST_PUT if isinstance(step, Put) else _ABSENT
    return _Ending(change, tuple(applied))


def _meets(state: int, expect: Expectation) -> bool:
    if expect == ANY:
        return True
    if expect == ABSENT:
        return state == _ABSENT
    return state > 0 and state == expect


def _compare(chosen: wire.TxnRequest, key: bytes, state: int) -> None:
    if state == _ABSENT:
        chosen.compare.add(target=wire.Compare.CREATE, key=key, create_revision=0)
        return
    revision, place = revision_and_place(state)
    below, above = value_bounds(place)
    chosen.compare.add(target=wire.Compare.MOD, key=key, mod_revision=revision)
    chosen.compare.add(target=wire.Compare.VALUE, result=wire.Compare.GREATER, key=key, value=below)
    chosen.compare.add(target=wire.Compare.VALUE, result=wire.Compare.LESS, key=key, value=above)


def _side(count: int) -> int:
    """Of the smallest square that holds so many."""
    return isqrt(count - 1) + 1


def _two_levels(request: wire.TxnRequest, side: int) -> _Adder:
    """Adds to transactions of `side` operations inside the request, one after the other."""
    inner = wire.TxnRequest()

    def add() -> wire.RequestOp:
        nonlocal inner
        if len(inner.success) in (0, side):
            inner = request.success.add().request_txn
        added: wire.RequestOp = inner.success.add()
        return added

    return add


def _from_two_levels(responses: Iterable[wire.ResponseOp]) -> Iterator[wire.ResponseOp]:
    for response in responses:
        yield from response.response_txn.responses
