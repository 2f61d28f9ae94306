"""The pages say what the code does: tables that would rot are compared with it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from dray.cli.pages import TABLE_BEGINS, TABLE_ENDS, checks_table, with_table
from dray.daemon.forwarding_metrics import ForwardingMetrics
from dray.daemon.metrics import CompactorMetrics
from dray.daemon.migrator_metrics import MigratorMetrics
from dray.telemetry import Metrics

ROOT = Path(__file__).parents[3]


def test_every_metric_is_on_the_operations_page_and_none_else() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    listed = dict(re.findall(r"^\| `(dray_\w+)` \| (\w+) \|", page, re.MULTILINE))
    metrics = Metrics(process=False)
    CompactorMetrics(metrics, lambda: 0, topics=0)
    MigratorMetrics(metrics, topics=0)
    ForwardingMetrics(metrics, ())
    metrics.topic_traffic(0, lambda: 0.0)
    exported = {family.name: family.type for family in metrics.registry.collect()}
    assert listed == exported


def test_links_between_the_pages_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_no_page_names_a_path_of_this_machine() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
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
    assert listed == named


def test_the_page_of_rights_has_the_checks_of_all_handlers() -> None:
    page = (ROOT / "docs" / "authorization.md").read_text()
    assert page.count(TABLE_BEGINS) == page.count(TABLE_ENDS) == 1
    assert page == with_table(page, checks_table()), "run: python -m dray.cli.pages"
