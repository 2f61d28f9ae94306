"""Where values come from: a YAML file, the environment, flags. Each becomes a layer of raw values
by path, and each value keeps its origin, for the error line and for `drayd config show --origin`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

from dray.config.kinds import TextMap
from dray.config.problems import MASK, ConfigError, bad_value, unknown_key
from dray.config.schema import fields, fields_by_path, sections

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

    def put(self, path: KeyPath, value: Any, origin: str) -> None:
        self.values[path] = value
        self.origins[path] = origin


@dataclass(frozen=True)
class FlagValue:
    """A flag of the command line, as the text that was given."""

    flag: str
    key: str
    text: str


def file_layer(path: Path) -> Layer:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the config file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the config file {path} is not UTF-8 text (byte {error.start})") from error
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        layer = Layer()
        if root is not None:
            _take_node(layer, root, (), str(path))
        return layer
    except yaml.YAMLError as error:
        raise ConfigError(f"the config file {path} is not YAML: {_yaml_problem(error)}") from error


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
            raise unknown_key(variable, text, "the environment", list(by_variable))
    return layer


def flag_layer(flags: Iterable[FlagValue]) -> Layer:
    layer = Layer()
    for given in flags:
        path = tuple(given.key.split("."))
        layer.put(path, fields_by_path()[path].kind.from_text(given.text), given.flag)
    return layer


def _is_not_ours(variable: str) -> bool:
    return (
        variable in RESERVED
        or variable.startswith(RESERVED_PREFIXES)
        or _SERVICE_LINK.fullmatch(variable) is not None
    )


def _take_node(layer: Layer, node: yaml.Node, path: KeyPath, file: str) -> None:
    """Walk the parsed file by hand: it keeps the line numbers, and sees a key that is given twice."""
    origin = f"{file}:{node.start_mark.line + 1}"
    known = fields_by_path().get(path)
    if known is not None and not isinstance(known.kind, TextMap):
        layer.put(path, _plain(node), origin)
        return
    inside_map = known is None and fields_by_path().get(path[:-1]) is not None
    if inside_map:
        layer.put(path, _plain(node), origin)
        return
    if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null":
        return  # a section of which every line is commented out
    if not isinstance(node, yaml.MappingNode):
        _refuse_non_mapping(path, node, origin)
        raise AssertionError("a node that is no mapping was let through")
    seen: set[str] = set()
    for key_node, value_node in node.value:
        name = str(key_node.value)
        if name in seen:
            line = key_node.start_mark.line + 1
            raise ConfigError(f"{'.'.join((*path, name))} is given twice (from {file}:{line}): remove one")
        seen.add(name)
        _refuse_unknown((*path, name), value_node, f"{file}:{key_node.start_mark.line + 1}")
        _take_node(layer, value_node, (*path, name), file)


def _refuse_non_mapping(path: KeyPath, node: yaml.Node, origin: str) -> None:
    if not path:
        raise ConfigError(f"the config file (from {origin}) must hold sections: {', '.join(sections())}")
    known = fields_by_path().get(path)
    if known is not None:
        raise bad_value(
            ".".join(path), MASK if known.kind.secret else _plain(node), known.kind.allowed(), origin
        )
    inside = [item.path[-1] for item in fields() if item.path[:-1] == path]
    raise bad_value(".".join(path), _plain(node), f"a section with the keys {', '.join(inside)}", origin)


def _refuse_unknown(path: KeyPath, node: yaml.Node, origin: str) -> None:
    if (
        path in fields_by_path()
        or path[:-1] in fields_by_path()
        or any(item.path[: len(path)] == path for item in fields())  # a section, or one within it
    ):
        return
    siblings = [item.key for item in fields() if item.path[:-1] == path[:-1]]
    if len(path) == 1:
        siblings += list(sections())
    raise unknown_key(".".join(path), _plain(node), origin, siblings)


def _take_map(layer: Layer, path: KeyPath, value: Any, origin: str) -> None:
    known = fields_by_path()[path]
    if not isinstance(value, Mapping):
        raise bad_value(known.key, MASK if known.kind.secret else value, known.kind.allowed(), origin)
    for name, item in value.items():
        layer.put((*path, str(name)), item, origin)


def _plain(node: yaml.Node) -> Any:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node, deep=True)
    finally:
        loader.dispose()


def _yaml_problem(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"{error.problem} at line {mark.line + 1}, column {mark.column + 1}"
    return " ".join(str(error).split())
