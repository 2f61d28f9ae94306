"""`drayd migrate attach --bootstrap`: the brokers that are asked must be those of the stores."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from typer.testing import CliRunner

from dray.cli.commands.migrate import attach as migrate
from dray.cli.main import app
from dray.daemons.migrator import migration


@dataclass(frozen=True)
class Described:
    cluster_id: str


def test_brokers_of_another_cluster_are_refused_before_anything_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attached: list[object] = []
    monkeypatch.setattr(migrate, "ask", lambda *_: Described("theirs"))
    monkeypatch.setattr(migration, "cluster_id", lambda _: "ours")
    monkeypatch.setattr(migration, "attach", lambda *given: attached.append(given))
    arguments = [
        "migrate",
        "attach",
        "orders",
        "--from",
        "/srv/tier",
        "--layout",
        "kafka-tiered",
        "--execute",
    ]
    done = CliRunner().invoke(app, [*arguments, "--bootstrap", "b:1"])
    assert attached == []
    assert "its brokers are of cluster theirs, and the stores of the config are those of ours" in str(
        done.exception
    )
