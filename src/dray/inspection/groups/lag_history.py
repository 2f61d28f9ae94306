"""How groups lagged: a sample now and then, in memory, of as many groups as are worth it.

Groups whose pages were looked at come first; then the others, up to a bound. So ten thousand groups cost no
more than a hundred, and a curve goes on while its page is open.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from dray.base.runtime import KeptTask, Runtime, keep_running
from dray.inspection.brokers import Brokers, BrokerUnreachable
from dray.inspection.groups.views import LagOfGroup, TimeOf, group_calls, lags_of
from dray.kafka.client import ClientError, RequestFailed

EVERY_SECONDS: Final = 15.0
KEPT: Final = 240
"""Points of a curve: an hour."""
MOST_GROUPS: Final = 100
_CLOSEST_SECONDS: Final = 5.0
"""Looks at a page that come faster than this are one point."""


@dataclass(frozen=True)
class LagPoint:
    at_ms: int
    lag: int
    lag_ms: int | None
    """The age of the first unread record; None where it is not known."""


class LagHistory:
    def __init__(
        self,
        brokers: Brokers,
        runtime: Runtime,
        time_of: TimeOf | None = None,
        *,
        only_seen: bool = False,
    ) -> None:
        """`only_seen`: sample no other groups than those whose pages were looked at."""
        self._only_seen = only_seen
        self._brokers = brokers
        self._runtime = runtime
        self._time_of = time_of
        self._curves: OrderedDict[str, deque[LagPoint]] = OrderedDict()
        """The one that was looked at last comes last."""
        self._task: KeptTask | None = None

    def start(self) -> None:
        self._task = keep_running(self._runtime, "sample the groups' lag", self._run)

    async def stop(self) -> None:
        if self._task is not None:
            await self._task.stop()
            self._task = None

    def points(self, group: str) -> Sequence[LagPoint]:
        return list(self._curves.get(group, ()))

    def seen(self, group: str, lag: int, lag_ms: int | None) -> None:
        """A page shows this group now."""
        self._add(group, LagOfGroup(lag, lag_ms))
        self._curves.move_to_end(group)

    def take(self, lags: Mapping[str, LagOfGroup]) -> None:
        for group, lag in lags.items():
            self._add(group, lag)

    def _add(self, group: str, lag: LagOfGroup) -> None:
        curve = self._curves.get(group)
        if curve is None:
            curve = self._curves[group] = deque(maxlen=KEPT)
            self._curves.move_to_end(group, last=False)
            if len(self._curves) > MOST_GROUPS:
                # The newcomer stands first, and what was looked at longest ago next to it.
                self._curves.pop(next(name for name in self._curves if name != group))
        now = self._runtime.wall_ms()
        if curve and 0 <= now - curve[-1].at_ms < 1000 * _CLOSEST_SECONDS:
            now = curve.pop().at_ms
        curve.append(LagPoint(now, lag.records, lag.milliseconds))

    async def sample(self) -> None:
        if self._only_seen:
            self.take(await lags_of(self._brokers, list(self._curves), self._time_of))
            return
        listed = [group.group_id for group in await group_calls(self._brokers).list_groups()]
        known = set(listed)
        watched = [name for name in reversed(self._curves) if name in known]
        for gone in self._curves.keys() - known:
            del self._curves[gone]
        chosen = list(dict.fromkeys([*watched, *listed]))[:MOST_GROUPS]
        self.take(await lags_of(self._brokers, chosen, self._time_of))

    async def _run(self) -> None:
        while True:
            with suppress(ClientError, RequestFailed, BrokerUnreachable, TimeoutError):  # pages say so
                await self.sample()
            await self._runtime.sleep(EVERY_SECONDS)
