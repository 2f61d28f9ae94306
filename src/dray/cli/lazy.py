"""Groups whose commands are imported when they are run: the list of them is instant, and a command that asks
a broker does not load one. What the options say is taken as it is where it needs no reading."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command


class CommandEntry(NamedTuple):
    """A command before it is imported: its line in the list, and its panel there."""

    module: str  # in `package`
    attribute: str  # the function of a command, or the Typer app of a group
    line: str
    panel: str | None = None
    package: str = "dray.cli.commands"

    @property
    def is_group(self) -> bool:
        return self.attribute == "app"

    def load(self, name: str) -> Any:
        """The command itself, its module imported."""
        found = getattr(import_module(f"{self.package}.{self.module}"), self.attribute)
        if not isinstance(found, typer.Typer):
            lone = typer.Typer(rich_markup_mode="rich", pretty_exceptions_enable=False)
            lone.command(name)(found)
            found = lone
        found._add_completion = False  # the root has it
        command = get_command(found)
        command.name = name
        _take_as_is(command)
        return command


class LazyGroup(TyperGroup):
    """Knows its commands by name, and imports only the one that is run."""

    entries: ClassVar[Mapping[str, CommandEntry]] = {}
    _listing = False

    def get_params(self, ctx: Any) -> list[Any]:
        return [_taken(each) for each in super().get_params(ctx)]

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - Typer's signature
        return list(self.entries)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - Typer's signature
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        if self._listing:
            return TyperCommand(cmd_name, help=entry.line, rich_help_panel=entry.panel)
        return entry.load(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except typer.TyperException as error:
            if args and (near := self._near(ctx, args[0])):
                error.message = f"{error.message.rstrip('.')}. Did you mean {near}?"
            raise

    def _near(self, ctx: Any, name: str) -> str | None:
        """As it is typed, with what comes before it: here, or in a group below."""
        groups = {each: entry.load(each) for each, entry in self.entries.items() if entry.is_group}
        elsewhere = {
            each: f"{of} {each}" for of, group in groups.items() for each in group.list_commands(ctx)
        }
        known = {**elsewhere, **{each: each for each in self.entries}}
        near = [name] if name in known else get_close_matches(name, known, n=1)
        return f"'{ctx.command_path} {known[near[0]]}'" if near else None

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False


def _take_as_is(command: Any) -> None:
    """Typer has pydantic make an adapter for each option, which takes longer than most commands do. A text, a
    flag, a default and what was not given need none."""
    parameters = command.get_params
    command.get_params = lambda ctx: [_taken(each) for each in parameters(ctx)]
    for inner in getattr(command, "commands", {}).values():
        _take_as_is(inner)


def _taken(parameter: Any) -> Any:
    described = getattr(parameter, "type_descriptor", None)
    read = getattr(parameter, "get_runtime_param", None)
    if described is None or read is None or isinstance(getattr(read, "__self__", None), _Taken):
        return parameter
    if described.parameter_info.parser is None:
        parameter.get_runtime_param = _Taken(described.annotation, read).itself
    return parameter


class _Taken:
    def __init__(self, kind: Any, read: Callable[[], Any]) -> None:
        self._kind = kind
        self._read = read

    def itself(self) -> _Taken:
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if type(value) is self._kind:
            return value
        if self._kind == list[str] and isinstance(value, tuple):
            return list(value)
        return self._read().coerce(value, param=param, ctx=ctx)


class LazyModule:
    """A module that is imported with the first of its names that is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)
