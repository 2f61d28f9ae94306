"""The kinds of settings. A kind reads a value, says what it allows, and writes the value back.

One object for each setting serves validation, the error line, `drayd config show` and the reference
page, so they cannot disagree. A kind is strict: it takes its own type and the human forms that it
documents, and never guesses across types (`true` is not 1, `"7"` in YAML is not a number).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from ipaddress import ip_address, ip_network
from typing import Any, Final

KIB: Final = 1024
MIB: Final = 1024**2
GIB: Final = 1024**3

MINUTE: Final = 60.0
HOUR: Final = 3600.0
DAY: Final = 86400.0

SIZE_UNITS: Final = {
    "B": 1,
    "KIB": KIB,
    "MIB": MIB,
    "GIB": GIB,
    "TIB": 1024**4,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
DURATION_UNITS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": MINUTE, "h": HOUR, "d": DAY}

_AMOUNT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")


MASK: Final = "********"


class InvalidValue(ValueError):
    """The value is not of this kind. The kind's own text says what is, unless the error has one of its
    own."""


def unfolded(value: Any) -> Any:
    """A mapping that an environment variable holds as JSON; any other value as it is."""
    if not isinstance(value, str) or not value.startswith("{"):
        return value
    yaml = import_module("yaml")
    try:
        return yaml.safe_load(value)
    except yaml.YAMLError:
        raise InvalidValue from None


class Kind(ABC):
    secret = False

    @abstractmethod
    def parse(self, value: Any) -> Any: ...

    @abstractmethod
    def allowed(self) -> str:
        """Completes the sentence "the value must be ..."."""

    def render(self, value: Any) -> Any:
        """The value as plain YAML, in the form that a person would write."""
        return value

    def from_text(self, text: str) -> Any:
        """The meaning of a flag or an environment variable, before it is parsed."""
        return text


@dataclass(frozen=True)
class Whole(Kind):
    minimum: int
    maximum: int

    def parse(self, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidValue
        if not self.minimum <= value <= self.maximum:
            raise InvalidValue
        return value

    def allowed(self) -> str:
        return f"a whole number from {self.minimum} to {self.maximum}"

    def from_text(self, text: str) -> Any:
        return int(text) if re.fullmatch(r"[+-]?[0-9]{1,30}", text) else text


@dataclass(frozen=True)
class Switch(Kind):
    def parse(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise InvalidValue
        return value

    def allowed(self) -> str:
        return "true or false"

    def from_text(self, text: str) -> Any:
        return {"true": True, "false": False}.get(text.lower(), text)


@dataclass(frozen=True)
class Size(Kind):
    """Bytes: a whole number, or an amount with a unit."""

    minimum: int
    maximum: int

    def parse(self, value: Any) -> int:
        size = _size_of_text(value) if isinstance(value, str) else value
        if isinstance(size, bool) or not isinstance(size, int) or not self.minimum <= size <= self.maximum:
            raise InvalidValue
        return size

    def allowed(self) -> str:
        return f"a size from {size_text(self.minimum)} to {size_text(self.maximum)}, such as 64MiB"

    def render(self, value: Any) -> Any:
        return size_text(value)


@dataclass(frozen=True)
class Duration(Kind):
    """Seconds inside, always written with a unit outside: a bare number says nothing."""

    minimum: float
    maximum: float

    def parse(self, value: Any) -> float:
        match = _AMOUNT.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None or match[2] not in DURATION_UNITS:
            raise InvalidValue
        seconds = float(match[1]) * DURATION_UNITS[match[2]]
        if not self.minimum <= seconds <= self.maximum:
            raise InvalidValue
        return seconds

    def allowed(self) -> str:
        return (
            f"a duration from {duration_text(self.minimum)} to {duration_text(self.maximum)}, "
            "with its unit (us, ms, s, m, h or d), such as 100ms"
        )

    def render(self, value: Any) -> Any:
        return duration_text(value)


class Choice(Kind):
    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def parse(self, value: Any) -> str:
        if not isinstance(value, str) or value not in self.choices:
            raise InvalidValue
        return value

    def allowed(self) -> str:
        return f"one of {', '.join(self.choices)}"


@dataclass(frozen=True)
class Text(Kind):
    pattern: str
    meaning: str

    def parse(self, value: Any) -> str:
        if not isinstance(value, str) or re.fullmatch(self.pattern, value) is None:
            raise InvalidValue
        return value

    def allowed(self) -> str:
        return self.meaning


class TextList(Kind):
    """Texts, as a YAML list or with a separator between them."""

    def __init__(self, pattern: str, meaning: str, separator: str = ",", least: int = 0) -> None:
        self.pattern = pattern
        self.least = least
        self.meaning = meaning
        self.separator = separator

    def parse(self, value: Any) -> tuple[str, ...]:
        if isinstance(value, str):
            value = [part.strip() for part in value.split(self.separator) if part.strip() or self.least]
        if not isinstance(value, list | tuple) or not all(isinstance(part, str) for part in value):
            raise InvalidValue
        if len(value) < self.least or not all(re.fullmatch(self.pattern, part) for part in value):
            raise InvalidValue
        return tuple(value)

    def allowed(self) -> str:
        return self.meaning

    def render(self, value: Any) -> Any:
        return self.separator.join(value)


@dataclass(frozen=True)
class Address:
    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Can only this machine reach it? A name other than `localhost` may lead anywhere."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class HostPort(Kind):
    """IPv6 hosts stand in brackets. Port 0 asks the system for a free one, where that makes sense."""

    free_port: bool = False

    def parse(self, value: Any) -> Address:
        if isinstance(value, Address):
            return value
        match = (
            re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+)):([0-9]{1,5})", value)
            if isinstance(value, str)
            else None
        )
        if match is None:
            raise InvalidValue
        port = int(match[3])
        if not (0 if self.free_port else 1) <= port <= 65535:
            raise InvalidValue
        return Address(match[1] or match[2], port)

    def allowed(self) -> str:
        ending = " (port 0: any free port)" if self.free_port else ""
        return f"HOST:PORT, such as 127.0.0.1:9092 or [::1]:9092{ending}"

    def render(self, value: Any) -> Any:
        return str(value)


class Either(Kind):
    """A word that stands for None, or a value of another kind: `auto`, `none`."""

    def __init__(self, word: str, kind: Kind) -> None:
        self.word = word
        self.kind = kind

    def parse(self, value: Any) -> Any:
        if value is False and self.word == "off":  # which is what YAML makes of that word without quotes
            return None
        return None if value is None or value == self.word else self.kind.parse(value)

    def allowed(self) -> str:
        return f"{self.word}, or {self.kind.allowed()}"

    def render(self, value: Any) -> Any:
        return self.word if value is None else self.kind.render(value)

    def from_text(self, text: str) -> Any:
        return None if text == self.word else self.kind.from_text(text)


class TextMap(Kind):
    """Names with text values. `separator` is what `_` in an environment variable's name means."""

    def __init__(self, meaning: str, name_pattern: str, separator: str = "_") -> None:
        self.meaning = meaning
        self.name_pattern = name_pattern
        self.separator = separator

    def parse(self, value: Any) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise InvalidValue
        return {self._name(name): self._text(text) for name, text in value.items()}

    def allowed(self) -> str:
        return self.meaning

    def render(self, value: Any) -> Any:
        return dict(value)

    def from_text(self, text: str) -> Any:
        yaml = import_module("yaml")
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError:
            return text

    def name_from_environment(self, name: str) -> str:
        return name.lower().replace("_", self.separator)

    def _name(self, name: Any) -> str:
        if not isinstance(name, str) or re.fullmatch(self.name_pattern, name) is None:
            raise InvalidValue
        return name

    def _text(self, value: Any) -> Any:
        if isinstance(value, bool):
            return str(value).lower()
        if not isinstance(value, str | int | float):
            raise InvalidValue
        return str(value)


class AddressMap(TextMap):
    """Addresses by name. The names are in capitals, as Kafka writes those of listeners."""

    def __init__(self, meaning: str, *, free_port: bool = False) -> None:
        super().__init__(meaning, r"[A-Z][A-Z0-9_]{0,99}")
        self._address = HostPort(free_port)

    def render(self, value: Any) -> Any:
        return {name: str(address) for name, address in value.items()}

    def name_from_environment(self, name: str) -> str:
        return name.upper()

    def _text(self, value: Any) -> Any:
        return self._address.parse(value)


class RangeMap(TextMap):
    """Ranges of addresses by name."""

    def render(self, value: Any) -> Any:
        return {name: [str(each) for each in ranges] for name, ranges in value.items()}

    def _text(self, value: Any) -> Any:
        given = value.split(",") if isinstance(value, str) else value
        if not isinstance(given, list | tuple) or not given:
            raise InvalidValue
        try:
            return tuple(ip_network(each.strip()) for each in given)
        except (ValueError, AttributeError) as error:
            raise InvalidValue from error


@dataclass(frozen=True)
class Secret:
    text: str = field(repr=False)


class SecretMap(TextMap):
    """Values that are never printed, not in an error line either."""

    secret = True

    def render(self, value: Any) -> Any:
        return dict.fromkeys(value, MASK)

    def _text(self, value: Any) -> Any:
        return value if isinstance(value, Secret) else Secret(super()._text(value))


def size_text(size: int) -> str:
    for unit, name in ((1024**4, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size and size % unit == 0:
            return f"{size // unit}{name}"
    return f"{size}B"


def duration_text(seconds: float) -> str:
    microseconds = round(seconds * 1_000_000)
    for name, unit in (("d", DAY), ("h", HOUR), ("m", MINUTE), ("s", 1.0), ("ms", 1e-3)):
        size = round(unit * 1_000_000)
        if microseconds and microseconds % size == 0:
            return f"{microseconds // size}{name}"
    return f"{microseconds}us" if microseconds else "0s"


def _size_of_text(text: str) -> int:
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise InvalidValue
    unit = SIZE_UNITS.get(match[2].upper() or "B")
    if unit is None:
        raise InvalidValue
    return round(float(match[1]) * unit)
