"""The pages say what the code does: tables that would rot are compared with it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tools import metric_series

from dray.cli.pages import TABLE_BEGINS, TABLE_ENDS, checks_table, with_table

ROOT = Path(__file__).parents[3]


def test_the_page_of_metrics_has_all_of_them_and_none_else() -> None:
    page = metric_series.PAGE.read_text()
    assert page == metric_series.with_tables(page), f"run: {metric_series.COMMAND}"
    assert page.count("\n| `dray_") == len(metric_series.definitions())


def test_no_page_names_a_path_of_this_machine() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        assert str(ROOT) not in page.read_text(), page


def test_the_api_table_of_the_readme_is_the_registrys() -> None:
    page = (ROOT / "README.md").read_text()
    assert page.count(TABLE_BEGINS) == page.count(TABLE_ENDS) == 1
    assert page == with_table(page), "run: python -m dray.cli.pages"


def test_every_dependency_is_listed_with_its_licence() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = [
        *project["project"]["dependencies"],
        *(one for some in project["project"]["optional-dependencies"].values() for one in some),
        *(one for some in project["dependency-groups"].values() for one in some if isinstance(one, str)),
    ]
    named = {found[0] for found in (re.match(r"[A-Za-z0-9._-]+", one) for one in asked) if found}
    page = (ROOT / "docs" / "dependencies.md").read_text()
    rows = re.findall(r"^\| (`[^|]+) \| ([^|]+) \|", page, re.MULTILINE)
    listed = {name for packages, licence in rows for name in re.findall(r"`([^`]+)`", packages) if licence}
    assert listed == named - {"dray-simulation"}, "that one is ours"


def test_the_page_of_rights_has_the_checks_of_all_handlers() -> None:
    page = (ROOT / "docs" / "authorization.md").read_text()
    assert page.count(TABLE_BEGINS) == page.count(TABLE_ENDS) == 1
    assert page == with_table(page, checks_table()), "run: python -m dray.cli.pages"
