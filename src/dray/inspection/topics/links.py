"""Topics that come from a Kafka cluster which was running when they were linked: how far each is.

The record of the move and the boundaries are in the metadata store. How far the mirror is behind, the source
has to say, too: it is asked where this process's config names it.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from dray.base.runtime import Runtime, run_once
from dray.inspection.brokers import Brokers
from dray.inspection.health import HealthCheck, State
from dray.inspection.storage.stored import StoredCluster
from dray.kafka.client import ClientError, RequestFailed
from dray.kafka.client.cluster import Place
from dray.kafka.client.records import LATEST
from dray.kafka.protocol.messages.metadata import MetadataResponse
from dray.migration.record import MigrationRecord, MigrationState

MOST_ROWS: Final = 50
MOST_GROUPS: Final = 50

MEANINGS: Final = {
    MigrationState.ATTACHING: "it is being linked: nothing is seen of it here yet",
    MigrationState.PUBLISHING: "it is being linked: it is about to be seen here",
    MigrationState.MIRRORING: "the source owns it: produce there, or here and it is passed on; read anywhere",
    MigrationState.PENDING: "it is being switched: the source's writers are fenced off or about to be",
    MigrationState.SWITCHED: "it is Dray's: groups move when their last member has left the source",
    MigrationState.MOVED: "it is Dray's, and nothing is left to do at the source",
    MigrationState.ABORTING: "it is being taken back",
}
_NO_SOURCE: Final = "this console does not ask sources"
_ORDER: Final = list(MigrationState)
_WEIGHT: Final[dict[State, int]] = {"bad": 0, "unsure": 1, "good": 2}


@dataclass(frozen=True)
class LinkState:
    """A topic's link, in a few words."""

    topic: str
    state: str
    upstream: str
    concern: State
    troubles: Sequence[str]
    """The things that a person has to know, one sentence each."""
    stopped: int
    """Partitions whose mirror cannot go on."""
    stragglers: int
    """Offsets that were written at the source after Dray took the topic over."""
    lag: int | None = None
    """Records that are not mirrored yet. None where it is not known, 0 once the topic is Dray's."""


@dataclass(frozen=True)
class LinkedPartition:
    partition: int
    here: int | None
    """The offset up to which it is here; None where its stream is gone."""
    source_end: int | None
    """The last stable offset there; None where it is not known."""
    boundary: int | None
    """The first offset that Dray gave; None while the source owns the partition."""
    lag: int | None
    stopped: str | None
    stragglers: int


@dataclass(frozen=True)
class LinkView:
    link: LinkState
    meaning: str
    source: str
    linked_ms: int
    switched_ms: int | None
    fence: str | None
    partitions: Sequence[LinkedPartition]
    source_unknown: str
    """Why the source's ends are not known; empty where they are."""
    groups: Mapping[str, Sequence[str]]
    """The first of the groups that come with the topic, by how far they are,"""
    group_counts: Mapping[str, int]
    """and how many there are."""


@dataclass(frozen=True)
class LinksSummary:
    states: Mapping[str, int]
    rows: Sequence[LinkState]
    total: int
    source_unknown: Sequence[str]


def link_state(topic: str, record: MigrationRecord, lag: int | None = None) -> LinkState:
    stopped, stragglers = record.stopped or {}, record.stragglers or {}
    troubles: list[str] = []
    concern: State = "good"
    if record.why:
        said = "the switch does not go on" if record.is_pending else "the last switch went back"
        troubles.append(f"{said}: {record.why}")
        concern = "unsure"
    if record.state is MigrationState.MIRRORING and record.undo is not None:
        troubles.append("the fence at the source is not lifted yet: a migrator does it when it reaches it")
        concern = "unsure"
    if record.skipped:
        troubles.append(
            f"{sum(each.offsets for each in record.skipped.values())} offsets are not here: the source had "
            "deleted them before they were mirrored"
        )
    if stragglers:
        troubles.append(
            f"{sum(stragglers.values())} offsets were written at the source after the switch: "
            f"drayd migrate stragglers {topic}"
        )
        concern = "unsure"
    if stopped:
        word = "partition is" if len(stopped) == 1 else "partitions are"
        troubles.append(f"{len(stopped)} {word} not mirrored any more: {next(iter(stopped.values()))}")
        concern = "bad"
    if not record.is_classic:
        lag = 0
    return LinkState(
        topic,
        record.state.value,
        record.upstream or "",
        concern,
        troubles,
        len(stopped),
        sum(stragglers.values()),
        lag,
    )


async def link_view(
    brokers: Brokers,
    stored: StoredCluster,
    looks: SourceLooks | None,
    topic: str,
    *,
    names_groups: bool,
) -> LinkView | None:
    """None for a topic that is not linked. `names_groups`: whether the reader may know every group's name."""
    record = await stored.live_migration(topic)
    if record is None:
        return None
    ends = SourceEnds({})
    if record.is_classic:
        ends = await _ends(looks, record.upstream or "", [topic])
    rows = []
    for number, stream in enumerate(record.streams):
        mark = await stored.high_watermark(stream)
        here = None if mark is None or mark.closed else mark.end
        origin = None if mark is None else mark.origin
        boundary = None if origin is None or origin.is_classic else origin.boundary
        end = ends.ends.get((topic, number))
        rows.append(
            LinkedPartition(
                number,
                here,
                end,
                boundary,
                _lag(here, end, boundary),
                (record.stopped or {}).get(number),
                (record.stragglers or {}).get(number, 0),
            )
        )
    found = await brokers.recall("followed groups", stored.followed_groups)
    groups = {state: names for (name, state), names in found.items() if name == topic}
    lags = [row.lag for row in rows if row.lag is not None]
    return LinkView(
        link_state(topic, record, sum(lags) if len(lags) == len(rows) else None),
        MEANINGS[record.state],
        record.source,
        record.created_ms,
        record.switched_ms,
        record.fence,
        rows,
        ends.unknown,
        {state: names[:MOST_GROUPS] for state, names in groups.items() if names_groups},
        {state: len(names) for state, names in groups.items()},
    )


def _lag(here: int | None, source_end: int | None, boundary: int | None) -> int | None:
    if boundary is not None:
        return 0
    return None if here is None or source_end is None else max(0, source_end - here)


async def links_summary(
    brokers: Brokers, stored: StoredCluster, looks: SourceLooks | None, metadata: MetadataResponse
) -> LinksSummary | None:
    """Of the topics in `metadata`, which the reader may see. None where none is on its way."""
    visible = {topic.name: topic for topic in metadata.topics}
    records = {
        name: record
        for name, record in (await brokers.recall("links", stored.live_migrations)).items()
        if name in visible and record.state is not MigrationState.MOVED
    }
    if not records:
        return None
    plain = sorted(
        (link_state(name, record) for name, record in records.items()),
        key=lambda row: (_WEIGHT[row.concern], _ORDER.index(MigrationState(row.state)), row.topic),
    )
    shown = plain[:MOST_ROWS]
    classic = [row for row in shown if records[row.topic].is_classic]
    here: Mapping[tuple[str, int], int] = {}
    if classic:
        some = [visible[row.topic] for row in classic]
        try:
            here = await brokers.offsets(MetadataResponse(brokers=metadata.brokers, topics=some), LATEST)
        except (ClientError, RequestFailed):
            here = {}
    lags: dict[str, int] = {}
    unknown: list[str] = []
    for upstream in sorted({row.upstream for row in classic}):
        names = [row.topic for row in classic if row.upstream == upstream]
        answer = await _ends(looks, upstream, names)
        if answer.unknown:
            unknown.append(f"{upstream}: {answer.unknown}")
        for name in names:
            places = [(name, number) for number in range(len(records[name].streams))]
            if all(place in here and place in answer.ends for place in places):
                lags[name] = sum(max(0, answer.ends[place] - here[place]) for place in places)
    return LinksSummary(
        dict(Counter(record.state.value for record in records.values())),
        [link_state(row.topic, records[row.topic], lags.get(row.topic)) for row in shown],
        len(records),
        unknown,
    )


async def _ends(looks: SourceLooks | None, upstream: str, topics: Sequence[str]) -> SourceEnds:
    return SourceEnds({}, _NO_SOURCE) if looks is None else await looks.ends(upstream, topics)


def links_check(links: LinksSummary) -> HealthCheck:
    worst = links.rows[0]
    said = ", ".join(
        f"{count} {state}" for state, count in sorted(links.states.items(), key=lambda each: -each[1])
    )
    if worst.concern == "good":
        return HealthCheck("Links", "good", said)
    return HealthCheck("Links", worst.concern, f"{worst.topic}: {worst.troubles[-1]}")


# --- looks at sources, without making a page wait for them
# A source may be far away, slow or gone. A page waits for a moment, and shows what is known by then; the look
# goes on, and the page's next one has its answer. However many pages are open, a source is asked at most
# every two seconds for the same topics.


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
