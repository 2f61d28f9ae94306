"""Topics: a page of their list, and one of them whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from dray.broker.topics.compaction_requests import CompactionRequest, CompactionRequests, RequestState
from dray.broker.topics.model import Topic
from dray.inspection.brokers import Brokers
from dray.inspection.groups.views import commits_of_all
from dray.inspection.records.reading import NoSuchTopic
from dray.inspection.storage.stored import StoredCluster
from dray.inspection.topics.links import LinkState, link_state
from dray.kafka.client import ClientError, RequestFailed
from dray.kafka.client.admin import TOPIC_RESOURCE
from dray.kafka.client.cluster import Place
from dray.kafka.client.errors import check
from dray.kafka.client.groups import lags
from dray.kafka.client.records import EARLIEST, LATEST
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from dray.kafka.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from dray.kafka.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from dray.metadata.contract import MetadataError

PAGE: Final = 50
DEFAULT_SOURCE: Final = 5
"""A config's source in Kafka's words: it is not set anywhere."""
DYNAMIC_TOPIC: Final = 1

_SOURCES: Final = {1: "topic", 2: "broker", 3: "all brokers", 4: "broker's file", 5: "default"}


@dataclass(frozen=True)
class ReaderLag:
    group: str
    lag: int


@dataclass(frozen=True)
class TopicRow:
    name: str
    partitions: int
    replicas: int
    internal: bool
    records: int | None
    """None where it could not be asked for."""
    size: int | None
    """Bytes as they were sent, of one copy."""
    trouble: str | None = None
    received: float | None = None
    """Bytes a second from producers, in the last minute. None where it is not known."""
    dollars_per_day: float | None = None
    """The price of its bytes by lying in the object store."""
    readers: Sequence[ReaderLag] | None = None
    """The groups that read it, those that lag most first. None where not all groups were asked."""


@dataclass(frozen=True)
class TopicsPage:
    rows: Sequence[TopicRow]
    total: int
    matching: int
    page: int
    pages: int
    filter: str
    trouble: str | None = None


@dataclass(frozen=True)
class PartitionRow:
    partition: int
    leader: int
    replicas: Sequence[int]
    start: int | None
    end: int | None
    size: int | None
    trouble: str | None = None
    """Why its offsets are not known."""

    @property
    def records(self) -> int | None:
        return None if self.start is None or self.end is None else self.end - self.start


@dataclass(frozen=True)
class ConfigRow:
    name: str
    value: str | None
    source: str
    changed: bool
    sensitive: bool
    read_only: bool
    documentation: str


@dataclass(frozen=True)
class InspectedTopic:
    name: str
    topic_id: str
    internal: bool
    partitions: Sequence[PartitionRow]
    configs: Sequence[ConfigRow]
    configs_refused: str | None = None
    """Why there are none here. A user who may read a topic may not always see its settings."""
    link: LinkState | None = None
    """Of a topic that comes, or came, from a cluster that was running."""

    @property
    def records(self) -> int:
        return sum(row.records or 0 for row in self.partitions)

    @property
    def size(self) -> int | None:
        sizes = [row.size for row in self.partitions if row.size is not None]
        return sum(sizes) if sizes else None


@dataclass(frozen=True)
class TopicFlow:
    """The numbers of Dray's own processes about topics, beside what Kafka's protocol does."""

    received: Mapping[str, float]
    """Bytes a second, of those that are counted by name."""
    price: Callable[[int], float]
    """Of a day, for so many bytes."""


async def topics_page(
    brokers: Brokers, wanted: str = "", page: int = 1, size: int = PAGE, flow: TopicFlow | None = None
) -> TopicsPage:
    """Names come from one request; numbers are asked for the rows of this page alone, so that ten thousand
    topics cost no more than fifty."""
    metadata = await brokers.metadata()
    topics = sorted((topic for topic in metadata.topics if topic.name), key=lambda topic: topic.name or "")
    matching = [topic for topic in topics if wanted.lower() in (topic.name or "").lower()]
    pages = max(1, -(-len(matching) // size))
    page = min(max(page, 1), pages)
    shown = matching[(page - 1) * size : page * size]
    numbers, trouble = await _numbers(brokers, metadata, shown)
    rows = [_row(topic, numbers) for topic in shown]
    if flow is not None:
        rows = [_with_flow(row, flow) for row in rows]
    commits = await commits_of_all(brokers) if rows else None
    if commits is not None:
        rows = _with_readers(rows, commits, numbers.ends)
    return TopicsPage(rows, len(topics), len(matching), page, pages, wanted, trouble)


@dataclass(frozen=True)
class _Numbers:
    starts: Mapping[tuple[str, int], int]
    ends: Mapping[tuple[str, int], int]
    sizes: Mapping[tuple[str, int], int]
    troubles: Mapping[tuple[str, int], str] = field(default_factory=dict)


async def _numbers(
    brokers: Brokers, metadata: MetadataResponse, topics: Sequence[MetadataResponseTopic]
) -> tuple[_Numbers, str | None]:
    """A broker that does not answer leaves gaps, and a line that says so: the list is shown all the same."""
    some = MetadataResponse(brokers=metadata.brokers, topics=list(topics))
    troubles: dict[Place, str] = {}
    try:
        starts = await brokers.offsets(some, EARLIEST, troubles)
        ends = await brokers.offsets(some, LATEST, troubles)
        sizes = await partition_sizes(brokers, some)
    except (ClientError, RequestFailed) as error:
        return _Numbers({}, {}, {}), str(error)
    return _Numbers(starts, ends, sizes, troubles), None


def _row(topic: MetadataResponseTopic, numbers: _Numbers) -> TopicRow:
    name = topic.name or ""
    places = [(name, partition.partition_index) for partition in topic.partitions]
    known = [place for place in places if place in numbers.starts and place in numbers.ends]
    sizes = [numbers.sizes[place] for place in places if place in numbers.sizes]
    trouble = None
    if topic.error_code:
        trouble = ErrorCode(topic.error_code).name
    elif failing := [place for place in places if place in numbers.troubles]:
        first = failing[0]
        trouble = f"{len(failing)} of its partitions fail: {first[1]}: {numbers.troubles[first]}"
    elif known and len(known) < len(places):
        trouble = f"{len(places) - len(known)} of its partitions have no leader"
    return TopicRow(
        name,
        len(places),
        max((len(partition.replica_nodes) for partition in topic.partitions), default=0),
        topic.is_internal,
        sum(numbers.ends[place] - numbers.starts[place] for place in known) if known else None,
        sum(sizes) if sizes else None,
        trouble,
    )


def _with_readers(
    rows: Sequence[TopicRow],
    commits: Mapping[str, Mapping[Place, int]],
    ends: Mapping[Place, int],
) -> list[TopicRow]:
    readers: dict[str, dict[str, int]] = {row.name: {} for row in rows}
    for group, offsets in commits.items():
        for (topic, _), lag in lags(offsets, ends).items():
            if topic in readers:
                readers[topic][group] = readers[topic].get(group, 0) + lag
    return [
        replace(
            row,
            readers=[
                ReaderLag(group, lag)
                for group, lag in sorted(readers[row.name].items(), key=lambda each: (-each[1], each[0]))
            ],
        )
        for row in rows
    ]


def _with_flow(row: TopicRow, flow: TopicFlow) -> TopicRow:
    return replace(
        row,
        received=flow.received.get(row.name),
        dollars_per_day=None if row.size is None else flow.price(row.size),
    )


async def partition_sizes(brokers: Brokers, metadata: MetadataResponse) -> dict[tuple[str, int], int]:
    """Bytes of each partition, of one copy: brokers tell of the replicas that they hold. Empty where the
    cluster does not say."""
    wanted = [
        DescribableLogDirTopic(topic.name or "", [item.partition_index for item in topic.partitions])
        for topic in metadata.topics
    ]
    found: dict[tuple[str, int], int] = {}
    if not any(topic.partitions for topic in wanted):
        return found
    for link in brokers.of(metadata).values():
        try:
            response = await link.request(DescribeLogDirsRequest(topics=wanted))
        except ClientError:
            continue  # an older broker, or one that is just gone: its sizes are left out
        for result in response.results:
            for topic in result.topics:
                for item in topic.partitions:
                    place = topic.name, item.partition_index
                    found[place] = max(found.get(place, 0), item.partition_size)
    return found


async def topic_view(brokers: Brokers, name: str, stored: StoredCluster | None = None) -> InspectedTopic:
    """Raises `NoSuchTopic`. `stored`: says whether the topic comes from another cluster."""
    metadata = await brokers.metadata([name])
    topic = metadata.topics[0]
    if topic.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
        raise NoSuchTopic(f"there is no topic {name}")
    check(f"cannot look at topic {name}", topic.error_code)
    troubles: dict[Place, str] = {}
    starts = await brokers.offsets(metadata, EARLIEST, troubles)
    ends = await brokers.offsets(metadata, LATEST, troubles)
    sizes = await partition_sizes(brokers, metadata)
    configs: Sequence[ConfigRow] = ()
    refused = None
    try:
        configs = await topic_configs(brokers, name)
    except RequestFailed as error:
        refused = str(error)
    return InspectedTopic(
        name,
        str(topic.topic_id),
        topic.is_internal,
        [
            PartitionRow(
                item.partition_index,
                item.leader_id,
                list(item.replica_nodes),
                starts.get((name, item.partition_index)),
                ends.get((name, item.partition_index)),
                sizes.get((name, item.partition_index)),
                troubles.get((name, item.partition_index)),
            )
            for item in sorted(topic.partitions, key=lambda item: item.partition_index)
        ],
        configs,
        refused,
        None if stored is None else await _link(stored, name),
    )


async def _link(stored: StoredCluster, name: str) -> LinkState | None:
    """A store that does not answer takes none of the page but this."""
    try:
        record = await stored.live_migration(name)
    except MetadataError:
        return None
    return None if record is None else link_state(name, record)


async def topic_configs(brokers: Brokers, name: str) -> list[ConfigRow]:
    resource = DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None
    )
    link = await brokers.first()
    response = await link.request(DescribeConfigsRequest(resources=[resource], include_documentation=True))
    result = response.results[0]
    check(f"cannot look at the settings of {name}", result.error_code, result.error_message)
    return [
        ConfigRow(
            config.name,
            None if config.is_sensitive else config.value,
            _SOURCES.get(config.config_source, "unknown"),
            config.config_source == DYNAMIC_TOPIC,
            config.is_sensitive,
            config.read_only,
            config.documentation or "",
        )
        for config in sorted(result.configs, key=lambda config: config.name)
    ]


# --- compaction, when it is asked for


_SAID: Final = {
    RequestState.WAITING: "waits for a compactor",
    RequestState.RUNNING: "is being compacted",
    RequestState.DONE: "was compacted",
    RequestState.FAILED: "was not compacted",
}


@dataclass(frozen=True)
class CompactionProgress:
    topic: str
    state: str
    is_open: bool
    asked_ms: int
    moved_ms: int
    partitions: int
    done: int
    why: str

    @property
    def line(self) -> str:
        """One line for a person."""
        said = f"{self.topic} {_SAID[RequestState(self.state)]}: {self.done} of {self.partitions} partitions"
        return f"{said} ({self.why})" if self.why else said


def progress_of(topic: str, request: CompactionRequest) -> CompactionProgress:
    return CompactionProgress(
        topic,
        request.state.value,
        request.state.is_open,
        request.asked_ms,
        request.moved_ms,
        request.partitions,
        request.done,
        request.why,
    )


async def compaction_of(
    stored: StoredCluster, requests: CompactionRequests, name: str
) -> CompactionProgress | None:
    """None where nothing was asked for lately. Raises `NoSuchTopic`."""
    found = await requests.of(await _topic(stored, name))
    return None if found is None else progress_of(name, found)


async def ask_compaction(
    stored: StoredCluster, requests: CompactionRequests, name: str
) -> CompactionProgress:
    """Ask for it, or look at what was asked for before. Raises `NoSuchTopic`, `TooManyRequests`."""
    return progress_of(name, await requests.ask(await _topic(stored, name)))


async def _topic(stored: StoredCluster, name: str) -> Topic:
    topic = await stored.topic(name)
    if topic is None:
        raise NoSuchTopic(f"there is no topic {name} in the metadata store")
    return topic
