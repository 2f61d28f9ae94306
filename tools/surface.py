"""What users and stored data see of Dray, one entry per line, in `tests/frozen/surface.txt`.

`python -m tools.surface` writes it anew, after a change that is meant. Modules are found by what they define,
so moving one changes nothing here.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import cache
from hashlib import sha256
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from uuid import UUID

import typer
from tools.metric_series import definitions

from dray.kafka.protocol import SCHEMAS

ROOT: Final = Path(__file__).parents[1]
ROOTS: Final = ROOT / "src", ROOT / "simulation"
FILE: Final = ROOT / "tests" / "frozen" / "surface.txt"
STORED: Final = ("foreign", "values", "wal")
"""Folders of `tests/fixtures` with files as they are stored."""

REFUSALS: Final = {
    "BadInput",
    "BadSearch",
    "ConfigError",
    "Failure",
    "InvalidValue",
    "TopicError",
    "UserFault",
}
"""Exceptions whose text is told to a user: these, those derived from them, and all called `...Refused`."""


def lines() -> list[str]:
    entries = [
        *commands(),
        *settings(),
        *topic_configs(),
        *metrics(),
        *http_paths(),
        *apis(),
        *key_families(),
        *object_paths(),
        *stored_formats(),
        *error_lines(),
    ]
    return sorted(set(entries))


# --- where things are


@cache
def sources() -> dict[str, ast.Module]:
    """By module. What is generated is left out."""
    found = {}
    placed = sorted((path.relative_to(root), path) for root in ROOTS for path in root.glob("dray*/**/*.py"))
    for place, path in placed:
        if "messages" not in path.parts and not path.stem.endswith(("_pb2", "_pb2_grpc")):
            name = ".".join(place.with_suffix("").parts)
            found[name.removesuffix(".__init__")] = ast.parse(path.read_text(encoding="utf-8"))
    return found


@cache
def nodes(module: str) -> list[ast.AST]:
    """Of the kinds that are looked at: a tree is walked once."""
    kinds = (ast.Assign, ast.AnnAssign, ast.Call, ast.ClassDef, ast.Constant, ast.Dict, ast.JoinedStr)
    return [node for node in ast.walk(sources()[module]) if isinstance(node, kinds)]


def _defines(node: ast.stmt, name: str) -> bool:
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
    if isinstance(node, ast.AnnAssign):
        return isinstance(node.target, ast.Name) and node.target.id == name
    return isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name


def module_with(name: str) -> ModuleType:
    """The one module that defines a name."""
    found = [module for module, tree in sources().items() if any(_defines(node, name) for node in tree.body)]
    if len(found) != 1:
        raise LookupError(f"{name} is defined in {found or 'no module'}, and tools/surface.py asks for one")
    return import_module(found[0])


# --- the surface


def commands() -> Iterator[str]:
    script = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"][
        "drayd"
    ]
    root = typer.main.get_command(import_module(script.partition(":")[0]).app)
    yield from _command(root, "drayd", typer.Context(root))


def _command(command: Any, name: str, context: typer.Context) -> Iterator[str]:
    hidden = " hidden" if command.hidden else ""
    yield f"command {name}{hidden}"
    for parameter in command.params:
        yield f"command {name} {_parameter(parameter)}"
    if hasattr(command, "list_commands"):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            yield from _command(found, f"{name} {below}", typer.Context(found, context))


def _parameter(parameter: Any) -> str:
    names = "/".join([*parameter.opts, *parameter.secondary_opts])
    shown = names if parameter.param_type_name == "option" else parameter.name.upper()
    kind = parameter.type_descriptor.annotation
    members = [str(each.value) for each in kind] if isinstance(kind, type) and issubclass(kind, Enum) else []
    said = "|".join(members) or getattr(kind, "__name__", str(kind))
    bounds = [f"{name} {bound}" for name in ("min", "max") if (bound := getattr(parameter, name)) is not None]
    facts = [
        said,
        *bounds,
        *(fact for fact in ("required", "multiple", "hidden") if getattr(parameter, fact)),
    ]
    default = getattr(parameter.default, "value", parameter.default)
    return f"{shown}: {' '.join(facts)}" + ("" if default in (None, (), []) else f", default {default!r}")


def settings() -> Iterator[str]:
    for field in module_with("FieldOfModel").fields():
        default = json.dumps(field.kind.render(field.default), ensure_ascii=False)
        yield f"setting {field.key} = {default}: {field.kind.allowed()}"


def topic_configs() -> Iterator[str]:
    for config in module_with("ConfigDefinition").CONFIGS.values():
        yield f"topic config {config.name} = {config.default!r}"


def metrics() -> Iterator[str]:
    for metric in definitions().values():
        labels = ",".join(sorted(metric.labels))
        yield f"metric {metric.name}{{{labels}}} {metric.kind}"


def apis() -> Iterator[str]:
    for handler in module_with("HANDLERS").HANDLERS:
        yield f"api {handler.api_key:03} {SCHEMAS[handler.api_key].name} {handler.first} to {handler.last}"


_SAMPLES: Final[Mapping[str, Any]] = {
    "int": 7,
    "str": "NAME",
    "UUID": UUID(int=5),
    "Mapping[str, str]": {"user": "NAME"},
}


def key_families() -> Iterator[str]:
    """Every key that the functions of the module make, and every prefix that its constants are."""
    module = import_module(_module_of_keys())
    root = module.ROOT
    for value in vars(module).values():
        made = value
        if callable(value) and value.__module__ == module.__name__:
            kinds = [str(each.annotation) for each in signature(value).parameters.values()]
            if signature(value).return_annotation != "str" or not set(kinds) <= set(_SAMPLES):
                continue
            made = value(*(_SAMPLES[kind] for kind in kinds))
        if isinstance(made, str) and made.startswith(root):
            yield f"key {made}"


def _module_of_keys() -> str:
    [found] = [
        name
        for name, tree in sources().items()
        for node in tree.body
        if _defines(node, "ROOT")
        and isinstance(node, ast.Assign | ast.AnnAssign)
        and isinstance(node.value, ast.Constant)
        and str(node.value.value).startswith("/dray/")
    ]
    return found


_OBJECT_PATH: Final = re.compile(r"[a-z-]+/v\d+/.*")


def object_paths() -> Iterator[str]:
    for module in sources():
        parts = {
            id(part) for node in nodes(module) if isinstance(node, ast.JoinedStr) for part in node.values
        }
        for node in nodes(module):
            if id(node) not in parts and (template := _template(node)) and _OBJECT_PATH.fullmatch(template):
                yield f"object path {template}"


def stored_formats() -> Iterator[str]:
    folder = ROOT / "tests" / "fixtures"
    for path in sorted(path for name in STORED for path in (folder / name).rglob("*") if path.is_file()):
        yield f"stored {path.relative_to(folder)} {sha256(path.read_bytes()).hexdigest()[:16]}"


# --- addresses: those that routes are made of


def http_paths() -> Iterator[str]:
    for module in sources():
        names = _texts_of_names(module)
        for node in nodes(module):
            if isinstance(node, ast.Call):
                yield from _routes(node, names)
            elif isinstance(node, ast.Dict) and (paths := _paths(node)):
                yield from (f"http {path} of every process" for path in paths)


def _texts_of_names(module: str) -> dict[str, str]:
    return {
        target.id: text
        for node in nodes(module)
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and (text := _template(node.value)) is not None
    }


def _routes(call: ast.Call, names: Mapping[str, str]) -> Iterator[str]:
    made = ast.unparse(call.func).rpartition(".")[2]
    if made not in ("Route", "page", "Mount") or not call.args:
        return
    path = _template(call.args[0], names)
    if path is None or not path.startswith("/"):
        return
    if made == "page":
        yield f"http GET {path} of the console"
        yield f"http GET /api{path if path != '/' else '/cluster'} of the console"
    elif made == "Mount":
        yield f"http GET {path}/ of the console"
    else:
        methods = next((each.value for each in call.keywords if each.arg == "methods"), None)
        for method in ["GET"] if methods is None else ast.literal_eval(methods):
            yield f"http {method} {path} of the console"


def _paths(node: ast.Dict) -> list[str]:
    keys = [each.value for each in node.keys if isinstance(each, ast.Constant)]
    are_paths = [isinstance(each, str) and each.startswith("/") for each in keys]
    return [str(each) for each in keys] if keys and len(keys) == len(node.keys) and all(are_paths) else []


# --- what is said to a user who is refused


def error_lines() -> Iterator[str]:
    refusals = _refusals()
    for module in sources():
        for node in nodes(module):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in refusals:
                for argument in (*node.args, *(each.value for each in node.keywords)):
                    yield from (f"error {text!r}" for text in _texts(argument) if " " in text.strip())


def _refusals() -> set[str]:
    bases: dict[str, set[str]] = {}  # of all classes that have one name
    for module in sources():
        for node in nodes(module):
            if isinstance(node, ast.ClassDef):
                above = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
                bases.setdefault(node.name, set()).update(above)
    missing = REFUSALS - set(bases)
    if missing:
        raise LookupError(f"no class is called {sorted(missing)}: see REFUSALS in tools/surface.py")
    found = REFUSALS | {name for name in bases if name.endswith("Refused")}
    while more := {name for name, above in bases.items() if above & found} - found:
        found |= more
    return found


def _texts(node: ast.expr) -> Iterable[str]:
    """Each text that an expression may be, with `{}` where something is filled in."""
    if isinstance(node, ast.IfExp):
        return [*_texts(node.body), *_texts(node.orelse)]
    if isinstance(node, ast.BinOp):
        return [
            f"{left}{right}" for left in _texts(node.left) or ["{}"] for right in _texts(node.right) or ["{}"]
        ]
    template = _template(node)
    return [] if template is None else [template]


def _template(node: ast.AST, names: Mapping[str, str] | None = None) -> str | None:
    """A text, with `{}` for what is filled in, or with the text of its name where that is known."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.Name):
        return (names or {}).get(node.id)
    if not isinstance(node, ast.JoinedStr):
        return None
    parts = []
    for part in node.values:
        if isinstance(part, ast.Constant):
            parts.append(str(part.value))
        elif isinstance(part, ast.FormattedValue):
            parts.append(_template(part.value, names) or "{}")
    return "".join(parts)


def written() -> str:
    return "".join(f"{line}\n" for line in lines())


if __name__ == "__main__":
    FILE.write_text(written(), encoding="utf-8")
