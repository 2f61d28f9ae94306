"""The options of a read, checked before anything is asked of a broker. An error is one line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from dray.kafka.client.cluster import Place
from dray.kafka.client.properties import KEYS, ClientSecurity, PropertiesRefused, parse_security
from dray.tables.iceberg.settings import SettingsRefused
from dray.tables.spark_source.files import PREFIXES, TableAccess

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
LATEST_OFFSET: Final = -1
EARLIEST_OFFSET: Final = -2

_ADDRESS: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+)):([0-9]{1,5})")
_KNOWN: Final = (
    "bootstrap.servers",
    "topic",
    "path",
    "subscribe",
    "subscribepattern",
    "assign",
    "partitions",
    "startingoffsets",
    "endingoffsets",
    "startingtimestamp",
    "endingtimestamp",
    "recordspertask",
    "maxoffsetspertrigger",
    "failondataloss",
    "isolation.level",
    "compacted",
    "timeout",
)
_KAFKA: Final = "kafka."
"""Before properties of Kafka's clients, as Spark's own source of Kafka has it."""


class OptionRefused(ValueError):
    """An option of the source cannot be what it is."""


@dataclass(frozen=True)
class SourceOptions:
    bootstrap: tuple[tuple[str, int], ...]
    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None
    """Topics that match it as a whole are read, later ones too; `topics` is empty then."""
    partitions: Mapping[str, frozenset[int]]
    """Of topics of which not all partitions are read."""
    starting: str | Mapping[Place, int]
    """`earliest`, `latest`, or offsets by partition (-2 and -1 stand for the two); a partition that is not
    named starts at its earliest."""
    ending: str | Mapping[Place, int]
    starting_timestamp: int | None
    ending_timestamp: int | None
    records_per_task: int
    offsets_per_trigger: int | None
    ends_with_run: bool
    """Whether a stream goes no further than where the log ended when this run of it began."""
    fail_on_data_loss: bool
    committed: bool
    tables: TableAccess | None = field(repr=False)
    """Where the records are that the topics' tables have; None to read all from the log."""
    compacted: bool
    """Whether what no table has is left out."""
    timeout_seconds: float
    security: ClientSecurity
    """How brokers are connected to. It goes to the tasks with its password and authorities; a client's
    certificate is a file that each of them has."""

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
        options = {name.lower(): text for name, text in given.items()}
        security = _security(options)
        tables = _tables(options)
        for name in options:
            if name not in _KNOWN and not name.startswith((_KAFKA, *PREFIXES)):
                raise OptionRefused(f"option {name}: there is no such option; known: {', '.join(_KNOWN)}")
        topics, pattern, partitions = _what_is_read(options)
        only = topics[0] if len(topics) == 1 else None
        starting = _offsets("startingOffsets", options.get("startingoffsets", EARLIEST), only)
        ending = _offsets("endingOffsets", options.get("endingoffsets", LATEST), only)
        if "startingtimestamp" in options and "startingoffsets" in options:
            raise OptionRefused("options startingOffsets and startingTimestamp: a read starts at one of them")
        if ending == EARLIEST or _names(ending, EARLIEST_OFFSET):
            raise OptionRefused("option endingOffsets: earliest would read nothing")
        if (starting == LATEST or _names(starting, LATEST_OFFSET)) and not streaming:
            raise OptionRefused("option startingOffsets: latest would read nothing")
        if "endingtimestamp" in options and "endingoffsets" in options:
            raise OptionRefused("options endingOffsets and endingTimestamp: a read ends at one of them")
        if streaming and ("endingtimestamp" in options or ending != LATEST):
            given_end = "endingTimestamp" if "endingtimestamp" in options else "endingOffsets"
            raise OptionRefused(f"option {given_end}: a stream has no end but endingOffsets=latest")
        compacted = _truth("compacted", options.get("compacted", "false"))
        if streaming and (tables is not None or compacted):
            raise OptionRefused("options iceberg.*, objects.*, compacted: only batches read tables")
        if compacted and tables is None:
            raise OptionRefused("option compacted: iceberg.* and objects.* say where the tables are")
        if not streaming and "maxoffsetspertrigger" in options:
            raise OptionRefused("option maxOffsetsPerTrigger: only streams have triggers")
        return cls(
            bootstrap=_addresses(options.get("bootstrap.servers", "127.0.0.1:9092")),
            topics=topics,
            pattern=pattern,
            partitions=partitions,
            starting=starting,
            ending=ending,
            starting_timestamp=_timestamp("startingTimestamp", options),
            ending_timestamp=_timestamp("endingTimestamp", options),
            records_per_task=_number("recordsPerTask", options.get("recordspertask", "1000000"), 1),
            offsets_per_trigger=_number("maxOffsetsPerTrigger", options["maxoffsetspertrigger"], 1)
            if "maxoffsetspertrigger" in options
            else None,
            ends_with_run=streaming and "endingoffsets" in options,
            fail_on_data_loss=_truth("failOnDataLoss", options.get("failondataloss", "true")),
            committed=_committed(options.get("isolation.level", "read_uncommitted")),
            tables=tables,
            compacted=compacted,
            timeout_seconds=float(_number("timeout", options.get("timeout", "60"), 1)),
            security=security,
        )

    @property
    def subject(self) -> str:
        """The topics that are read, in a few words for a message."""
        if self.pattern is not None:
            return f"topics that match {self.pattern.pattern}"
        return f"topic{'s' if len(self.topics) > 1 else ''} {', '.join(self.topics)}"

    @property
    def begins_late(self) -> bool:
        """Whether a read begins at what is the latest when it begins."""
        return self.starting == LATEST or _names(self.starting, LATEST_OFFSET)

    def chosen(self, topic: str) -> bool:
        return topic in self.topics if self.pattern is None else bool(self.pattern.fullmatch(topic))

    def of(self, topic: str) -> SourceOptions:
        """These options for one task, which reads one topic."""
        return replace(self, topics=(topic,), pattern=None, partitions={})


def _what_is_read(
    options: Mapping[str, str],
) -> tuple[tuple[str, ...], re.Pattern[str] | None, Mapping[str, frozenset[int]]]:
    """Topics, or a pattern of them, and the partitions of those of which not all are read."""
    ways = [
        name for name in ("topic", "subscribe", "subscribePattern", "assign") if options.get(name.lower())
    ]
    if len(ways) > 1:
        raise OptionRefused(f"options {' and '.join(ways)}: topics are named by one of them")
    if "partitions" in options and ways and ways[0].endswith(("Pattern", "assign")):
        raise OptionRefused(f"options partitions and {ways[0]}: assign alone says which partitions are read")
    if ways == ["assign"]:
        assigned = _assigned(options["assign"])
        return tuple(sorted(assigned)), None, assigned
    if ways == ["subscribePattern"]:
        try:
            return (), re.compile(options["subscribepattern"]), {}
        except re.error as error:
            raise OptionRefused(f"option subscribePattern: it is no regular expression: {error}") from error
    text = options[ways[0].lower()] if ways else options.get("path", "")
    topics = tuple(sorted({name.strip() for name in text.split(",")} - {""}))
    if not topics:
        raise OptionRefused(
            'option topic: it is needed, or load("TOPIC"), subscribe, subscribePattern, assign'
        )
    if "partitions" not in options:
        return topics, None, {}
    if len(topics) > 1:
        raise OptionRefused(
            "option partitions: it is of one topic; for partitions of several there is assign"
        )
    return topics, None, {topics[0]: _partitions(options["partitions"])}


def _assigned(text: str) -> dict[str, frozenset[int]]:
    found = _json(text)
    if not found or not all(
        isinstance(each, list) and each and all(type(one) is int and one >= 0 for one in each)
        for each in found.values()
    ):
        raise OptionRefused(f'option assign: {text!r} is not partitions such as {{"orders": [0, 1]}}')
    return {topic: frozenset(partitions) for topic, partitions in found.items()}


def _json(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _names(offsets: str | Mapping[Place, int], which: int) -> bool:
    return not isinstance(offsets, str) and which in offsets.values()


def _security(options: Mapping[str, str]) -> ClientSecurity:
    given = {name[len(_KAFKA) :]: text for name, text in options.items() if name.startswith(_KAFKA)}
    for name in given:
        if name not in KEYS:
            known = ", ".join(f"{_KAFKA}{key}" for key in KEYS)
            raise OptionRefused(f"option {_KAFKA}{name}: there is no such option; known: {known}")
    try:
        return parse_security(given)
    except PropertiesRefused as error:
        raise OptionRefused(f"option {_KAFKA}{error}") from error


def _addresses(text: str) -> tuple[tuple[str, int], ...]:
    found = []
    for part in text.split(","):
        matched = _ADDRESS.fullmatch(part.strip())
        if matched is None or not 0 < int(matched[3]) < 65536:
            raise OptionRefused(f"option bootstrap.servers: {part.strip()!r} is not HOST:PORT")
        found.append((matched[1] or matched[2], int(matched[3])))
    return tuple(found)


def _partitions(text: str) -> frozenset[int]:
    return frozenset(_number("partitions", part.strip(), 0) for part in text.split(","))


def _offsets(name: str, text: str, only: str | None) -> str | dict[Place, int]:
    """`only` is the topic of offsets without a topic, if one topic is read."""
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    found = _json(text) or {}
    if only is not None and not any(isinstance(each, dict) for each in found.values()):
        found = {only: found}
    try:
        offsets = {
            (topic, int(partition)): offset
            for topic, given in found.items()
            for partition, offset in given.items()
        }
    except (ValueError, AttributeError):
        offsets = {}
    if not offsets or not all(type(each) is int and each >= EARLIEST_OFFSET for each in offsets.values()):
        shape = '{"orders": {"0": 23, "1": 0}}' + (' or {"0": 23, "1": 0}' if only is not None else "")
        raise OptionRefused(
            f"option {name}: {text!r} is neither earliest, latest, nor offsets such as {shape}"
        )
    return offsets


def _number(name: str, text: str, least: int) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise OptionRefused(f"option {name}: {text!r} is not a whole number of {least} or more")
    return int(text)


def _timestamp(name: str, options: Mapping[str, str]) -> int | None:
    text = options.get(name.lower())
    return None if text is None else _number(name, text, 0)


def _tables(options: Mapping[str, str]) -> TableAccess | None:
    try:
        return TableAccess.parse(options)
    except SettingsRefused as error:
        raise OptionRefused(f"option {error}") from error


def _committed(text: str) -> bool:
    if text.lower() not in ("read_committed", "read_uncommitted"):
        raise OptionRefused(
            f"option isolation.level: {text!r} is neither read_committed nor read_uncommitted"
        )
    return text.lower() == "read_committed"


def _truth(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise OptionRefused(f"option {name}: {text!r} is neither true nor false")
    return text.lower() == "true"
