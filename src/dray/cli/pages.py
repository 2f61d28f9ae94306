"""The parts of the pages that the code knows better: `python -m dray.cli.pages` writes them anew, and
tests fail when they are out of step."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dray.broker.api.registry import HANDLERS
from dray.broker.api.shared import Handler
from dray.daemons.config.render import reference
from dray.kafka.protocol import SCHEMAS

TABLE_BEGINS = "<!-- api-table: python -m dray.cli.pages -->\n"
TABLE_ENDS = "<!-- /api-table -->\n"


def api_table(handlers: Iterable[Handler] = HANDLERS) -> str:
    rows = ["| API | key | versions |", "|---|---|---|"]
    for handler in sorted(handlers, key=lambda item: item.api_key):
        name = SCHEMAS[handler.api_key].name
        rows.append(f"| {name} | {handler.api_key} | {handler.first} to {handler.last} |")
    return "\n".join(rows) + "\n"


def checks_table(handlers: Iterable[Handler] = HANDLERS) -> str:
    """The rights that each API asks of a client, and its answer if they do not suffice."""
    rows = ["| API | operation | resource | else |", "|---|---|---|---|"]
    for handler in sorted(handlers, key=lambda item: item.api_key):
        name = SCHEMAS[handler.api_key].name
        if not handler.checks:
            rows.append(f"| {name} | none | | |")
        for check, denial in handler.checks.items():
            resource = check.resource.name.lower().replace("_", " ")
            rows.append(f"| {name} | {check.operation.name} | {resource} | {denial.value} |")
            name = ""
    return "\n".join(rows) + "\n"


def with_table(page: str, table: str | None = None) -> str:
    """The page with its table replaced: of the APIs, if no other is given."""
    before, _, rest = page.partition(TABLE_BEGINS)
    _, _, after = rest.partition(TABLE_ENDS)
    return f"{before}{TABLE_BEGINS}\n{api_table() if table is None else table}\n{TABLE_ENDS}{after}"


def write_pages(root: Path) -> None:
    readme = root / "README.md"
    readme.write_text(with_table(readme.read_text(encoding="utf-8")), encoding="utf-8")
    rights = root / "docs" / "authorization.md"
    rights.write_text(with_table(rights.read_text(encoding="utf-8"), checks_table()), encoding="utf-8")
    (root / "docs" / "configuration.md").write_text(reference(), encoding="utf-8")


if __name__ == "__main__":
    write_pages(Path.cwd())
