"""What the config says of Oxia arrives at the engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from dray.base.config.kinds import Secret
from dray.daemons.config.load import load
from dray.daemons.config.problems import ConfigError
from dray.daemons.config.render import show
from dray.metadata.oxia import OxiaSettings

FILE = """
metadata:
  engine: oxia
  oxia:
    addresses: one:1,[::1]:2
    namespace: dray-here
    tls: true
    ca_file: ca.pem
    certificate_file: mine.pem
    key_file: mine.key
    server_name: oxia.example
    secrets: {token: hidden}
"""


def test_every_setting_arrives(tmp_path: Path) -> None:
    file = tmp_path / "dray.yaml"
    file.write_text(FILE)
    loaded = load(file)
    metadata = loaded.settings.metadata
    assert metadata.engine == "oxia"
    assert metadata.servers == OxiaSettings(
        addresses=("one:1", "[::1]:2"),
        namespace="dray-here",
        tls=True,
        ca_file="ca.pem",
        certificate_file="mine.pem",
        key_file="mine.key",
        server_name="oxia.example",
        secrets={"token": Secret("hidden")},
    )
    assert "hidden" not in show(loaded, with_origins=True)
    assert "hidden" not in repr(metadata)


def test_the_environment_says_it_too() -> None:
    loaded = load(
        environment={
            "DRAY_METADATA__ENGINE": "oxia",
            "DRAY_METADATA__OXIA__ADDRESSES": "oxia:6648",
            "DRAY_METADATA__OXIA__SECRETS__TOKEN": "hidden",
        }
    )
    settings = loaded.settings.metadata.oxia
    assert settings.addresses == ("oxia:6648",)
    assert settings.token == "hidden"
    assert not settings.tls


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("addresses", "oxia"),
        ("addresses", "a:1,"),
        ("namespace", "a/b"),
        ("tls", "maybe"),
    ],
)
def test_what_is_not_allowed_is_one_line(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"metadata.oxia.{key}"):
        load(environment={f"DRAY_METADATA__OXIA__{key.upper()}": value})


def test_an_unknown_key_of_the_section_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "dray.yaml"
    file.write_text("metadata:\n  oxia:\n    adresses: one:1\n")
    with pytest.raises(ConfigError, match=r"metadata\.oxia\.adresses"):
        load(file)
