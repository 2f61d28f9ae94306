"""Whether a cluster is well, as a few sentences that a person can act upon. Pure: what is known comes in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from dray.inspection.storage.costs import OperationRow, StoresView

SILENT_MS: Final = 120_000
"""A compactor beats much more often than this."""

FEW_FAILURES: Final = 6
"""In a minute, as the alerts have it: what is tried again and then works is no outage."""

State = Literal["good", "unsure", "bad"]


@dataclass(frozen=True)
class HealthCheck:
    what: str
    state: State
    said: str


def broker_check(count: int, silent: Sequence[str]) -> HealthCheck:
    if silent:
        return HealthCheck(
            "Brokers", "bad", f"{', '.join(silent)} gives no answer to a request for its numbers"
        )
    return HealthCheck("Brokers", "good", "1 serves" if count == 1 else f"{count} serve")


def partition_check(partitions: int, leaderless: int) -> HealthCheck:
    if leaderless:
        return HealthCheck(
            "Partitions", "bad", f"{leaderless} of {partitions} have no leader: clients cannot use them"
        )
    return HealthCheck("Partitions", "good", "all have a leader" if partitions else "none yet")


def store_checks(stores: StoresView) -> list[HealthCheck]:
    """None before anything was measured."""
    if not stores.seconds:
        return []
    return [_store("Object store", stores.objects), _store("Metadata store", stores.metadata)]


def _store(what: str, rows: Sequence[OperationRow]) -> HealthCheck:
    failures = sum(row.failures for row in rows)
    if failures:
        said = "1 request" if failures == 1 else f"{failures} requests"
        state: State = "bad" if failures > FEW_FAILURES else "unsure"
        return HealthCheck(what, state, f"{said} failed in the last minute")
    slowest = max((row.mean_ms for row in rows if row.mean_ms is not None), default=None)
    if slowest is None:
        return HealthCheck(what, "good", "not asked in the last minute")
    return HealthCheck(what, "good", f"answers, slowest requests {slowest:.2g} ms")


def log_checks(stores: StoresView) -> list[HealthCheck]:
    """The processes' reports on the log and its tables, if not all is well with them."""
    found = []
    if stores.lost:
        said = "an object of it is" if stores.lost == 1 else f"{stores.lost} objects of it are"
        found.append(HealthCheck("Log", "bad", f"{said} gone: drayd admin lost says what can be done"))
    if stores.left_tables:
        said = "1 partition" if stores.left_tables == 1 else f"{stores.left_tables} partitions"
        found.append(
            HealthCheck("Tables", "unsure", f"{said} went on without theirs: drayd admin table says why")
        )
    return found


def compactor_check(seen_ms: Sequence[int], now_ms: int) -> HealthCheck:
    """`seen_ms`: when each gave its last sign of life."""
    if not seen_ms:
        return HealthCheck(
            "Compactors", "unsure", "none runs: records stay in WAL objects, and tables do not grow"
        )
    silent = [seen for seen in seen_ms if now_ms - seen > SILENT_MS]
    if len(silent) == len(seen_ms):
        return HealthCheck("Compactors", "bad", "silent for more than two minutes: tables do not grow")
    running = len(seen_ms) - len(silent)
    return HealthCheck("Compactors", "good", "1 runs" if running == 1 else f"{running} run")


def worst(checks: Sequence[HealthCheck]) -> State:
    found = {check.state for check in checks}
    return "bad" if "bad" in found else "unsure" if "unsure" in found else "good"
