"""The config file: its YAML is walked by hand, which keeps the line of each value. Who gives no file does not
load the parser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from dray.base.config.kinds import MASK, TextMap
from dray.daemons.config.problems import ConfigError, bad_value, unknown_key
from dray.daemons.config.schema import fields, fields_by_path, sections
from dray.daemons.config.sources import KeyPath, Layer


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
        if layer.leaves_out(".".join((*path, name)), f"{file}:{key_node.start_mark.line + 1}"):
            continue
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
