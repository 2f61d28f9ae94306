"""The sources of values: a YAML file (`yaml_file`), the environment, flags. Each becomes a layer of raw
values by path, and each value keeps its origin, for the error line and for `drayd config show --origin`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from dray.base.config.kinds import MASK, TextMap
from dray.daemons.config.problems import FORMER, bad_value, unknown_key
from dray.daemons.config.schema import fields, fields_by_path

KeyPath: TypeAlias = tuple[str, ...]

PREFIX: Final = "DRAY_"

# Variables with our prefix that are no settings: the config file's path, the broker that admin
# commands talk to, and what the project's own tests and benchmarks read.
RESERVED: Final = frozenset({"DRAY_CONFIG", "DRAY_BOOTSTRAP", "DRAY_COMMAND_CONFIG", "DRAY_REQUIRE"})
RESERVED_PREFIXES: Final = ("DRAY_TEST_", "DRAY_BENCH_")

# Kubernetes sets these in every pod next to a Service whose name starts with "dray".
_SERVICE_LINK: Final = re.compile(
    r"DRAY_(?:[A-Z0-9_]+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_\w+)?)?)"
)


@dataclass
class Layer:
    """Raw values by path, and where each was written."""

    values: dict[KeyPath, Any] = field(default_factory=dict)
    origins: dict[KeyPath, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def leaves_out(self, key: str, origin: str) -> bool:
        """Whether this is a setting that is gone, with a line for the operator."""
        if key not in FORMER:
            return False
        self.warnings.append(f"{key} (from {origin}) is gone: {FORMER[key]}; remove it")
        return True

    def put(self, path: KeyPath, value: Any, origin: str) -> None:
        self.values[path] = value
        self.origins[path] = origin


@dataclass(frozen=True)
class FlagValue:
    """A flag of the command line, as the text that was given."""

    flag: str
    key: str
    text: str


def environment_layer(environment: Mapping[str, str]) -> Layer:
    layer = Layer()
    by_variable = {item.variable: item for item in fields()}
    maps = {item.variable + "__": item for item in fields() if isinstance(item.kind, TextMap)}
    for variable in sorted(environment):
        if not variable.startswith(PREFIX) or _is_not_ours(variable):
            continue
        text = environment[variable]
        if (item := by_variable.get(variable)) is not None:
            value = item.kind.from_text(text)
            if isinstance(item.kind, TextMap):
                _take_map(layer, item.path, value, variable)
            else:
                layer.put(item.path, value, variable)
            continue
        for prefix, item in maps.items():
            if variable.startswith(prefix) and isinstance(item.kind, TextMap):
                name = item.kind.name_from_environment(variable[len(prefix) :])
                layer.put((*item.path, name), text, variable)
                break
        else:
            if layer.leaves_out(variable.removeprefix(PREFIX).lower().replace("__", "."), variable):
                continue
            raise unknown_key(variable, text, "the environment", list(by_variable))
    return layer


def flag_layer(flags: Iterable[FlagValue]) -> Layer:
    layer = Layer()
    for given in flags:
        if layer.leaves_out(given.key, given.flag):
            continue
        path = tuple(given.key.split("."))
        layer.put(path, fields_by_path()[path].kind.from_text(given.text), given.flag)
    return layer


def _is_not_ours(variable: str) -> bool:
    return (
        variable in RESERVED
        or variable.startswith(RESERVED_PREFIXES)
        or _SERVICE_LINK.fullmatch(variable) is not None
    )


def _take_map(layer: Layer, path: KeyPath, value: Any, origin: str) -> None:
    known = fields_by_path()[path]
    if not isinstance(value, Mapping):
        raise bad_value(known.key, MASK if known.kind.secret else value, known.kind.allowed(), origin)
    for name, item in value.items():
        layer.put((*path, str(name)), item, origin)
