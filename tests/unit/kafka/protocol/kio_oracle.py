"""Between kio's classes (one per version) and ours (one per struct): the oracle of the codec tests.

Nothing here knows how our generator merges versions. An instance is made of kio's class for one version,
with random values of the types kio declares, and then said again with our class by the names of its fields.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
import types
import typing
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_writer

from dray.kafka.protocol import SCHEMAS, ZERO_UUID, Message, request_class, response_class
from dray.kafka.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from dray.kafka.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

TIMES = ("timedelta_i32", "timedelta_i64", "datetime_i64")
INTEGERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
WORDS = ["", "a", "orders", "日本語", "x" * 126, "y" * 127, "z" * 300]


@dataclasses.dataclass(frozen=True)
class Case:
    """One message in one version."""

    message: type[Message]
    version: int
    module: str

    @property
    def kio(self) -> Any:
        return getattr(importlib.import_module(self.module), self.message.__name__)

    def __str__(self) -> str:
        return f"{self.message.__name__}-v{self.version}"


def all_cases() -> list[Case]:
    messages: list[tuple[str, str, type[Message]]] = []
    for key, schema in SCHEMAS.items():
        messages.append((schema.module, "request", request_class(key)))
        messages.append((schema.module, "response", response_class(key)))
    messages.append(("consumer_protocol_subscription", "data", ConsumerProtocolSubscription))
    messages.append(("consumer_protocol_assignment", "data", ConsumerProtocolAssignment))
    return [
        Case(message, version, f"kio.schema.{api}.v{version}.{direction}")
        for api, direction, message in messages
        for version in range(message.VERSIONS[0], message.VERSIONS[1] + 1)
    ]


def kio_bytes(instance: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(instance))(out, instance)
    return out.getvalue()


def our_name(field: dataclasses.Field[Any]) -> str:
    return field.name + "_ms" if field.metadata.get("kafka_type") in TIMES else field.name


def shape(field: dataclasses.Field[Any]) -> tuple[Any, bool, bool]:
    """The type of the field or of its elements, whether it is an array, and whether it may be null."""
    inner, nullable = _strip(field.type)
    if typing.get_origin(inner) is tuple:
        return _strip(typing.get_args(inner)[0])[0], True, nullable
    return inner, False, nullable


def _strip(annotation: Any) -> tuple[Any, bool]:
    if isinstance(annotation, types.UnionType):
        (inner,) = (argument for argument in typing.get_args(annotation) if argument is not type(None))
        return inner, True
    return annotation, False


# Random instances of kio's classes


def random_entity(entity: Any, random: Random) -> Any:
    return entity(**{field.name: _random_field(field, random) for field in dataclasses.fields(entity)})


def _random_field(field: dataclasses.Field[Any], random: Random) -> Any:
    inner, array, nullable = shape(field)
    has_default = field.default is not dataclasses.MISSING
    if "tag" in field.metadata and has_default and random.random() < 0.4:
        return field.default
    if nullable and "tag" not in field.metadata and random.random() < 0.3:
        return None
    kind = field.metadata.get("kafka_type")
    if array:
        many = 150 if random.random() < 0.03 and kind is not None else 3
        return tuple(_random_value(kind, inner, random) for _ in range(random.randint(0, many)))
    return _random_value(kind, inner, random)


def _random_value(kind: str | None, inner: Any, random: Random) -> Any:
    if kind is None:
        return random_entity(inner, random)
    if kind in INTEGERS:
        bits = INTEGERS[kind]
        return random.choice([0, 1, -1, 2**bits - 1, -(2**bits), random.randint(-(2**bits), 2**bits - 1)])
    match kind:
        case "float64":
            return random.choice([0.0, -1.5, 1e300, random.random()])
        case "uint16":
            return random.choice([0, 1, 0xFFFF])
        case "bool":
            return random.random() < 0.5
        case "error_code":
            return random.choice(list(KioErrorCode))
        case "string":
            return random.choice(WORDS)
        case "bytes" | "records":
            return random.randbytes(random.choice([0, 1, 20, 200]))
        case "uuid":
            return random.choice([None, UUID(bytes=random.randbytes(16))])
        case "timedelta_i32":
            return timedelta(milliseconds=random.choice([-1, 0, 1, 30_000, 2**31 - 1]))
        case "timedelta_i64":
            return timedelta(milliseconds=random.choice([-1, 0, 1, 2**33]))
        case "datetime_i64":
            return datetime.fromtimestamp(random.choice([0, 1, 1_700_000_000]), UTC)
    raise ValueError(f"no values for the kind {kind}")


# The same in our classes


def to_ours(entity: Any, ours: Any) -> Any:
    """Our class with the values of kio's; fields of other versions keep our defaults."""
    return ours(
        **{
            our_name(field): to_our_field(field, getattr(entity, field.name), ours)
            for field in dataclasses.fields(entity)
        }
    )


def to_our_field(field: dataclasses.Field[Any], value: Any, ours: Any) -> Any:
    _, array, _ = shape(field)
    kind = field.metadata.get("kafka_type")
    if kind is None and value is not None:
        element = our_struct(ours, our_name(field))
        if array:
            return [to_ours(each, element) for each in value]
        if "tag" in field.metadata and value == field.default:
            return None  # a tagged struct that is not sent
        return to_ours(value, element)
    if array:
        return None if value is None else [_to_our_value(kind, each) for each in value]
    return _to_our_value(kind, value)


def our_struct(ours: Any, name: str) -> Any:
    """The struct class named in the annotation of one of our fields."""
    annotation = next(field.type for field in dataclasses.fields(ours) if field.name == name)
    word = annotation.removesuffix(" | None").removeprefix("list[").removesuffix("]")
    return getattr(importlib.import_module(ours.__module__), word)


def _to_our_value(kind: str | None, value: Any) -> Any:
    match kind:
        case "uuid":
            return ZERO_UUID if value is None else value
        case "error_code":
            return int(value)
        case "timedelta_i32" | "timedelta_i64":
            return value // timedelta(milliseconds=1)
        case "datetime_i64":
            return -1 if value is None else int(value.timestamp() * 1000)
    return value
