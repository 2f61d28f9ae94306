"""What is shown can be read back, hides what is secret, and the reference page is the model's."""

from __future__ import annotations

from pathlib import Path

from dray.config import load
from dray.config.render import reference, show

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


def test_secrets_are_masked() -> None:
    loaded = load(None, {"DRAY_OBJECTS__SECRETS__SECRET_ACCESS_KEY": "hunter2hunter2"})
    text = show(loaded, with_origins=True)
    assert "hunter2" not in text
    assert "secret_access_key: '********'" in text


def test_origins_stand_behind_their_values() -> None:
    lines = show(load(None, {"DRAY_BROKER__ID": "7"}), with_origins=True).splitlines()
    assert [line.split() for line in lines if line.startswith("  id:")] == [
        ["id:", "7", "#", "DRAY_BROKER__ID"],
    ]


def test_the_reference_page_is_in_step_with_the_model() -> None:
    assert PAGE.read_text() == reference(), "run: drayd config reference > docs/configuration.md"
