"""The parts of the pages that the code knows better: `python -m dray.cli.pages` writes them anew, and
tests fail when they are out of step."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dray.api.registry import HANDLERS
from dray.api.shared import Handler
from dray.config.render import reference
from dray.protocol import SCHEMAS

TABLE_BEGINS = "<!-- api-table: python -m dray.cli.pages -->\n"
TABLE_ENDS = "<!-- /api-table -->\n"


def api_table(handlers: Iterable[Handler] = HANDLERS) -> str:
    rows = ["| API | key | versions |", "|---|---|---|"]
    for handler in sorted(handlers, key=lambda item: item.api_key):
        name = SCHEMAS[handler.api_key].name
        rows.append(f"| {name} | {handler.api_key} | {handler.first} to {handler.last} |")
    return "\n".join(rows) + "\n"


def with_table(page: str) -> str:
    """The page with its API table replaced."""
    before, _, rest = page.partition(TABLE_BEGINS)
    _, _, after = rest.partition(TABLE_ENDS)
    return f"{before}{TABLE_BEGINS}\n{api_table()}\n{TABLE_ENDS}{after}"


def write_pages(root: Path) -> None:
    readme = root / "README.md"
    readme.write_text(with_table(readme.read_text(encoding="utf-8")), encoding="utf-8")
    (root / "docs" / "configuration.md").write_text(reference(), encoding="utf-8")


if __name__ == "__main__":
    write_pages(Path.cwd())
