"""Looks at the Kafka clusters that topics come from, without making a page wait for them.

A source may be far away, slow or gone. A page waits for a moment, and shows what is known by then; the look
goes on, and the page's next one has its answer. However many pages are open, a source is asked at most
every two seconds for the same topics.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from dray.client import ClientError, RequestFailed
from dray.client.cluster import Place
from dray.runtime import Runtime, run_once

PATIENCE_SECONDS: Final = 0.5
"""How long a page waits."""
FRESH_SECONDS: Final = 2.0
AFTER_FAILURE_SECONDS: Final = 10.0
LONGEST_LOOK: Final = 15.0
MOST_LOOKS: Final = 64

_BEING_ASKED: Final = "the source is being asked"

AskSource: TypeAlias = Callable[[str, Sequence[str]], Awaitable[Mapping[Place, int]]]
"""The last stable offsets of topics, at the upstream of that name. Raises `SourceUnknown`, `ClientError`,
`RequestFailed`."""


class SourceUnknown(Exception):
    """This process does not know how to reach the source. The text is one line."""


@dataclass(frozen=True)
class SourceEnds:
    ends: Mapping[Place, int]
    unknown: str = ""
    """Why they are not known; empty where they are."""


@dataclass
class _Look:
    answer: SourceEnds = field(default_factory=lambda: SourceEnds({}, _BEING_ASKED))
    good_until: float = float("-inf")
    task: asyncio.Task[None] | None = None


class SourceLooks:
    def __init__(self, ask: AskSource, runtime: Runtime) -> None:
        self._ask = ask
        self._runtime = runtime
        self._looks: OrderedDict[tuple[str, ...], _Look] = OrderedDict()
        """The one that was wanted last comes last."""

    async def ends(self, upstream: str, topics: Sequence[str]) -> SourceEnds:
        key = (upstream, *topics)
        look = self._looks.setdefault(key, _Look())
        self._looks.move_to_end(key)
        while len(self._looks) > MOST_LOOKS:
            _stop(self._looks.popitem(last=False)[1])
        if look.task is None or look.task.done():
            if self._runtime.monotonic() < look.good_until:
                return look.answer
            look.task = run_once(self._runtime, "look at a source", self._look, look, upstream, list(topics))
        await asyncio.wait({look.task}, timeout=PATIENCE_SECONDS)
        return look.answer

    def stop(self) -> None:
        for look in self._looks.values():
            _stop(look)

    async def _look(self, look: _Look, upstream: str, topics: Sequence[str]) -> None:
        fresh = AFTER_FAILURE_SECONDS
        try:
            async with asyncio.timeout(LONGEST_LOOK):
                look.answer = SourceEnds(await self._ask(upstream, topics))
            fresh = FRESH_SECONDS
        except TimeoutError:
            look.answer = SourceEnds({}, f"the source gave no answer within {LONGEST_LOOK:g} s")
        except (SourceUnknown, ClientError, RequestFailed) as error:
            look.answer = SourceEnds({}, str(error))
        look.good_until = self._runtime.monotonic() + fresh


def _stop(look: _Look) -> None:
    if look.task is not None:
        look.task.cancel()
