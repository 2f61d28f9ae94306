"""The options of a read, checked before anything is asked of a broker. What is wrong is one line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dray.client.properties import KEYS, ClientSecurity, PropertiesRefused, parse_security

EARLIEST: Final = "earliest"
LATEST: Final = "latest"

_ADDRESS: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+)):([0-9]{1,5})")
_KNOWN: Final = (
    "bootstrap.servers",
    "topic",
    "path",
    "partitions",
    "startingoffsets",
    "endingoffsets",
    "startingtimestamp",
    "recordspertask",
    "maxoffsetspertrigger",
    "failondataloss",
    "timeout",
)
_KAFKA: Final = "kafka."
"""Before properties of Kafka's clients, as Spark's own source of Kafka has it."""


class OptionRefused(ValueError):
    """An option of the source cannot be what it is."""


@dataclass(frozen=True)
class SourceOptions:
    bootstrap: tuple[tuple[str, int], ...]
    topic: str
    partitions: frozenset[int] | None
    """None: all of them."""
    starting: str | Mapping[int, int]
    """`earliest`, `latest`, or offsets by partition; a partition that is not named starts at its earliest."""
    ending: str | Mapping[int, int]
    starting_timestamp: int | None
    records_per_task: int
    offsets_per_trigger: int | None
    fail_on_data_loss: bool
    timeout_seconds: float
    security: ClientSecurity
    """How brokers are connected to. It goes to the tasks with its password and authorities; a client's
    certificate is a file that each of them has."""

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
        options = {name.lower(): text for name, text in given.items()}
        security = _security(options)
        for name in options:
            if name not in _KNOWN and not name.startswith(_KAFKA):
                raise OptionRefused(f"option {name}: there is no such option; known: {', '.join(_KNOWN)}")
        topic = options.get("topic") or options.get("path")
        if not topic:
            raise OptionRefused('option topic: it is needed, or load("TOPIC")')
        starting = _offsets("startingOffsets", options.get("startingoffsets", EARLIEST))
        ending = _offsets("endingOffsets", options.get("endingoffsets", LATEST))
        timestamp = options.get("startingtimestamp")
        if timestamp is not None and "startingoffsets" in options:
            raise OptionRefused("options startingOffsets and startingTimestamp: a read starts at one of them")
        if ending == EARLIEST:
            raise OptionRefused("option endingOffsets: earliest would read nothing")
        if starting == LATEST and not streaming:
            raise OptionRefused("option startingOffsets: latest would read nothing")
        if streaming and "endingoffsets" in options:
            raise OptionRefused("option endingOffsets: a stream has no end")
        if not streaming and "maxoffsetspertrigger" in options:
            raise OptionRefused("option maxOffsetsPerTrigger: only streams have triggers")
        return cls(
            bootstrap=_addresses(options.get("bootstrap.servers", "127.0.0.1:9092")),
            topic=topic,
            partitions=_partitions(options.get("partitions")),
            starting=starting,
            ending=ending,
            starting_timestamp=None if timestamp is None else _number("startingTimestamp", timestamp, 0),
            records_per_task=_number("recordsPerTask", options.get("recordspertask", "1000000"), 1),
            offsets_per_trigger=_number("maxOffsetsPerTrigger", options["maxoffsetspertrigger"], 1)
            if "maxoffsetspertrigger" in options
            else None,
            fail_on_data_loss=_truth("failOnDataLoss", options.get("failondataloss", "true")),
            timeout_seconds=float(_number("timeout", options.get("timeout", "60"), 1)),
            security=security,
        )


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


def _partitions(text: str | None) -> frozenset[int] | None:
    if text is None:
        return None
    return frozenset(_number("partitions", part.strip(), 0) for part in text.split(","))


def _offsets(name: str, text: str) -> str | dict[int, int]:
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    try:
        found = json.loads(text)
        offsets = {int(partition): offset for partition, offset in found.items()}
    except (ValueError, AttributeError):
        offsets = None
    if not offsets or not all(type(offset) is int and offset >= 0 for offset in offsets.values()):
        raise OptionRefused(
            f'option {name}: {text!r} is neither earliest, latest, nor offsets such as {{"0": 23, "1": 0}}'
        )
    return offsets


def _number(name: str, text: str, least: int) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise OptionRefused(f"option {name}: {text!r} is not a whole number of {least} or more")
    return int(text)


def _truth(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise OptionRefused(f"option {name}: {text!r} is neither true nor false")
    return text.lower() == "true"
