"""What is shown can be read back, hides what is secret, and the reference page is the model's."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from dray.daemons.config import ConfigError, load
from dray.daemons.config.render import reference, show
from dray.daemons.config.schema import fields

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_what_is_shown_is_a_config_file_with_the_same_settings(tmp_path: Path) -> None:
    environment = {
        "DRAY_BROKER__LISTEN": "[::1]:9093",
        "DRAY_BROKER__ID": "7",
        "DRAY_BROKER__HTTP": "off",
        "DRAY_LOG__FLUSH_LINGER": "2500us",
        "DRAY_LIMITS__BUFFER_BYTES": "300000001",
        "DRAY_OBJECTS__OPTIONS__REGION": "eu-west-1",
        "DRAY_TOPICS__DEFAULTS__RETENTION_MS": "86400000",
    }
    loaded = load(None, environment)
    for with_origins in (False, True):
        file = tmp_path / f"{with_origins}.yaml"
        file.write_text(show(loaded, with_origins))
        assert load(file).settings == loaded.settings


def test_what_is_allowed_reads_well_on_a_terminal() -> None:
    """A line of error has it, too: no link of a page."""
    linked = [field.key for field in fields() if "](" in field.kind.allowed()]
    assert linked == []
    with pytest.raises(ConfigError, match=r"FILE}; more in docs/security\.md$"):
        load(None, {"DRAY_BROKER__LISTENERS": "9092"})


def test_secrets_are_masked() -> None:
    loaded = load(None, {"DRAY_OBJECTS__SECRETS__SECRET_ACCESS_KEY": "hunter2hunter2"})
    text = show(loaded, with_origins=True)
    assert "hunter2" not in text
    assert "secret_access_key: '********'" in text


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("postgresql+psycopg://u:hunter2@db:5432/x", "postgresql+psycopg://u:********@db:5432/x"),
        ("postgresql://u:hunt/er2:hunter2@db/x", "postgresql://u:********@db/x"),
        ("postgresql://:hunter2@db/x", "postgresql://:********@db/x"),
        (
            "postgresql://db/x?user=u&password=hunter2&sslmode=on",
            "postgresql://db/x?user=u&password=********&sslmode=on",
        ),
        ("https://u@catalog:8181/ws?access_token=hunter2", "https://u@catalog:8181/ws?access_token=********"),
        ("sqlite:////srv/c.sqlite", "sqlite:////srv/c.sqlite"),
    ],
)
def test_passwords_in_addresses_are_masked(written: str, shown: str) -> None:
    loaded = load(None, {"DRAY_ICEBERG__URI": written, "DRAY_ICEBERG__OPTIONS__OTHER": written})
    text = show(loaded, with_origins=True)
    assert "hunter2" not in text
    tree = yaml.safe_load(text)
    assert (tree["iceberg"]["uri"], tree["iceberg"]["options"]["other"]) == (shown, shown)


def test_a_setting_that_is_refused_shows_no_password_of_an_address() -> None:
    with pytest.raises(ConfigError) as refused:
        load(None, {"DRAY_ICEBERG__CATALOG": "postgresql://u:hunter2@db/x"})
    assert "hunter2" not in str(refused.value)
    assert "postgresql://u:********@db/x" in str(refused.value)


def test_origins_stand_behind_their_values() -> None:
    lines = show(load(None, {"DRAY_BROKER__ID": "7"}), with_origins=True).splitlines()
    assert [line.split() for line in lines if line.startswith("  id:")] == [
        ["id:", "7", "#", "DRAY_BROKER__ID"],
    ]


def test_the_reference_page_is_in_step_with_the_model() -> None:
    assert PAGE.read_text() == reference(), "run: drayd config reference > docs/configuration.md"
