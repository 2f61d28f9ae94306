"""Groups whose commands are imported when they are run: the list of them is instant, and a command that asks
a broker does not load one."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command


class CommandEntry(NamedTuple):
    """A command before it is imported: its line in the list, and its panel there."""

    module: str  # in dray.cli.commands
    attribute: str  # the function of a command, or the Typer app of a group
    line: str
    panel: str | None = None

    def load(self, name: str) -> Any:
        """The command itself, its module imported."""
        found = getattr(import_module(f"dray.cli.commands.{self.module}"), self.attribute)
        if not isinstance(found, typer.Typer):
            lone = typer.Typer(rich_markup_mode="rich", pretty_exceptions_enable=False)
            lone.command(name)(found)
            found = lone
        found._add_completion = False  # the root has it
        command = get_command(found)
        command.name = name
        return command


class LazyGroup(TyperGroup):
    """Knows its commands by name, and imports only the one that is run."""

    entries: ClassVar[Mapping[str, CommandEntry]] = {}
    _listing = False

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - Typer's signature
        return list(self.entries)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - Typer's signature
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        if self._listing:
            return TyperCommand(cmd_name, help=entry.line, rich_help_panel=entry.panel)
        return entry.load(cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False
