"""One write of the contract as one request of Oxia, and its answer read back.

Oxia applies a request in one step, but in an order of its own: first the puts, then the deletes, then the
range deletes, each kind in the order given. The contract wants the operations in *their* order. If each key
is named once and no range is deleted, the two are the same, and that is nearly every write. Otherwise the
operations of each key are rewritten so that Oxia's order gives the same result:

- After an unconditional delete a key is known to be absent: what follows is decided here, and the delete is
  sent only if the key ends absent.
- A conditional delete that something follows is sent as a conditional put: it succeeds exactly when the
  delete would have, and what follows overwrites it.
- A range is cut around the keys of this write that end present; for the others it is one more delete.

Oxia's version ids start at 0 and come from one counter per shard, which every put moves on, so they never
come again; the contract's versions are positive, hence one more. The id -1 stands for "absent".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from dray.metadata.contract import ABSENT, ANY, Delete, DeleteRange, Operation, Outcome, Put, SessionEnded
from dray.metadata.oxia.keys import partition_key, stored_key
from dray.metadata.oxia.wire import client_pb2 as wire

NO_VERSION: Final = -1

_APPLIED: Final = Outcome(True)
_SKIPPED: Final = Outcome(False)


class _KnownState(Enum):
    """The knowledge of a key at some point within the write."""

    NOTHING = auto()
    PRESENT = auto()
    ABSENT = auto()


@dataclass(slots=True)
class _Fate:
    """The fate of one operation: it applied `always`, or if any of these puts or that delete did."""

    always: bool = False
    puts: list[int] = field(default_factory=list)
    delete: int | None = None


@dataclass(slots=True)
class _KeyPlan:
    known: _KnownState = _KnownState.NOTHING
    pending: dict[int, _Fate] = field(default_factory=dict)
    """Conditional deletes by the version they expect, not yet sent."""


class RequestPlan:
    """The request for one write; `outcomes` reads its response."""

    def __init__(
        self, shard: int, domain: int, operations: Sequence[Operation], session: int | None = None
    ) -> None:
        self.request = wire.WriteRequest(shard=shard)
        self._domain = domain
        self._partition_key = partition_key(domain)
        self._session = session
        self._fates: list[_Fate] | None = None
        self._operations = operations
        named = {operation.key for operation in operations if not isinstance(operation, DeleteRange)}
        if len(named) == len(operations) and not any(map(_never, operations)):
            self._plain()
        else:
            self._keys = {key: _KeyPlan() for key in named}
            self._ranges: list[DeleteRange] = []
            self._fates = [self._add(operation) for operation in operations]
            self._finish()

    # --- every key once: the orders agree

    def _plain(self) -> None:
        for operation in self._operations:
            if isinstance(operation, Put):
                self._put(operation.key, operation.value, _expected(operation.expect))
            elif isinstance(operation, Delete):
                self._delete(operation.key, _expected(operation.expect))

    # --- keys that come again, and ranges

    def _add(self, operation: Operation) -> _Fate:
        if isinstance(operation, DeleteRange):
            for key, state in self._keys.items():
                if operation.start <= key < operation.end:
                    self._erase(key, state)
            if operation.start < operation.end:
                self._ranges.append(operation)
            return _Fate(always=True)
        key, state = operation.key, self._keys[operation.key]
        if operation.expect == ANY:
            if isinstance(operation, Put):
                return self._overwrite(key, state, operation.value)
            self._erase(key, state)
            return _Fate(always=True)
        if operation.expect == ABSENT:
            assert isinstance(operation, Put)
            return self._create(key, state, operation.value)
        if _never(operation) or state.known is _KnownState.ABSENT or operation.expect in state.pending:
            return _Fate()  # that version cannot be there now
        if isinstance(operation, Put):
            return _Fate(puts=[self._put(key, operation.value, operation.expect - 1)])
        fate = state.pending[operation.expect] = _Fate()
        return fate

    def _erase(self, key: str, state: _KeyPlan) -> None:
        self._settle_pending(key, state, b"")
        state.known = _KnownState.ABSENT

    def _overwrite(self, key: str, state: _KeyPlan, value: bytes) -> _Fate:
        self._settle_pending(key, state, value)
        state.known = _KnownState.PRESENT
        return _Fate(puts=[self._put(key, value, None)])

    def _create(self, key: str, state: _KeyPlan, value: bytes) -> _Fate:
        """It applies where the key was absent, or where a delete before it made it so."""
        if state.known is _KnownState.ABSENT:
            return self._overwrite(key, state, value)
        fate = _Fate(puts=self._settle_pending(key, state, value))
        if state.known is _KnownState.NOTHING:
            fate.puts.append(self._put(key, value, NO_VERSION))
        state.known = _KnownState.PRESENT
        return fate

    def _settle_pending(self, key: str, state: _KeyPlan, value: bytes) -> list[int]:
        puts = []
        for version, fate in state.pending.items():
            fate.puts = [self._put(key, value, version - 1)]
            puts += fate.puts
        state.pending.clear()
        return puts

    def _finish(self) -> None:
        stays = []
        for key, state in self._keys.items():
            if state.known is _KnownState.ABSENT:
                self._delete(key, None)
            else:
                stays.append(key)
                for version, fate in state.pending.items():
                    fate.delete = self._delete(key, version - 1)
        stays.sort()
        for deleted in self._ranges:
            start = deleted.start
            for key in stays:
                if deleted.start <= key < deleted.end:
                    self._delete_range(start, key)
                    start = key + "\0"
            self._delete_range(start, deleted.end)

    # --- requests

    def _put(self, key: str, value: bytes, expected: int | None) -> int:
        self.request.puts.add(
            key=stored_key(self._domain, key),
            value=value,
            expected_version_id=expected,
            session_id=self._session,
            partition_key=self._partition_key,
        )
        return len(self.request.puts) - 1

    def _delete(self, key: str, expected: int | None) -> int:
        self.request.deletes.add(key=stored_key(self._domain, key), expected_version_id=expected)
        return len(self.request.deletes) - 1

    def _delete_range(self, start: str, end: str) -> None:
        if start < end:
            self.request.delete_ranges.add(
                start_inclusive=stored_key(self._domain, start), end_exclusive=stored_key(self._domain, end)
            )

    # --- the answer

    def outcomes(self, response: wire.WriteResponse) -> list[Outcome]:
        """`SessionEnded` when the session of the puts is over: then none of them applied."""
        puts = [self._put_outcome(put) for put in response.puts]
        deletes = [
            self._delete_outcome(*pair) for pair in zip(self.request.deletes, response.deletes, strict=True)
        ]
        if len(puts) != len(self.request.puts):
            raise ValueError(f"{len(puts)} answers to {len(self.request.puts)} puts")
        if self._fates is None:
            remaining_puts, remaining_deletes = iter(puts), iter(deletes)
            return [
                next(remaining_puts if isinstance(operation, Put) else remaining_deletes)
                for operation in self._operations
            ]
        outcomes = []
        for operation, fate in zip(self._operations, self._fates, strict=True):
            applied = [puts[index] for index in fate.puts if puts[index].applied]
            if isinstance(operation, Put):
                outcomes.append(applied[-1] if applied else _SKIPPED)
            else:
                deleted = fate.delete is not None and deletes[fate.delete].applied
                outcomes.append(_APPLIED if fate.always or applied or deleted else _SKIPPED)
        return outcomes

    def _put_outcome(self, put: wire.PutResponse) -> Outcome:
        if put.status == wire.OK:
            return Outcome(True, put.version.version_id + 1)
        if put.status == wire.SESSION_DOES_NOT_EXIST:
            raise SessionEnded(f"session {self._session} is over")
        return _SKIPPED

    def _delete_outcome(self, request: wire.DeleteRequest, response: wire.DeleteResponse) -> Outcome:
        absent_is_fine = response.status == wire.KEY_NOT_FOUND and not request.HasField("expected_version_id")
        return _APPLIED if response.status == wire.OK or absent_is_fine else _SKIPPED


def _never(operation: Operation) -> bool:
    """Versions are positive: these match nothing, though Oxia has a meaning for the ids they would be."""
    return (
        not isinstance(operation, DeleteRange) and isinstance(operation.expect, int) and operation.expect <= 0
    )


def _expected(expect: int | str) -> int | None:
    if isinstance(expect, int):
        return expect - 1
    return NO_VERSION if expect == ABSENT else None
