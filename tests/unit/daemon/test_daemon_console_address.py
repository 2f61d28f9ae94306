"""Where a console may listen."""

from __future__ import annotations

from typing import Any

import pytest

from dray.config.console import ConsoleSection
from dray.daemon.console_address import scheme_of, why_not_there

FILES = {"certificate_file": "c.pem", "key_file": "k.pem"}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, None),
        ({"listen": "localhost:0"}, None),
        ({"listen": "0.0.0.0:1"}, "must be a loopback address"),
        ({"listen": "0.0.0.0:1", **FILES}, "must be a loopback address"),
        ({"listen": "0.0.0.0:1", "behind_proxy": True}, "must be a loopback address"),
        ({"listen": "0.0.0.0:1", "auth": "sasl"}, "in clear"),
        ({"listen": "0.0.0.0:1", "auth": "sasl", **FILES}, None),
        ({"listen": "0.0.0.0:1", "auth": "sasl", "behind_proxy": True}, None),
        ({"auth": "sasl"}, None),
        ({"certificate_file": "c.pem"}, "give both"),
    ],
)
def test_others_reach_it_only_with_a_login_and_over_tls(given: dict[str, Any], reason: str | None) -> None:
    found = why_not_there(ConsoleSection(**given))
    assert (found is None) == (reason is None)
    assert reason is None or reason in (found or "")
    assert "\n" not in (found or "")


def test_what_browsers_speak() -> None:
    assert scheme_of(ConsoleSection()) == "http"
    assert scheme_of(ConsoleSection(behind_proxy=True)) == "https"
    assert scheme_of(ConsoleSection(**FILES)) == "https"  # type: ignore[arg-type]
