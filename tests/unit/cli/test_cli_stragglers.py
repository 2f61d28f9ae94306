"""`drayd migrate stragglers`: how it ends, by what it found."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from dray.cli.main import app
from dray.daemons.assembly.failures import Failure
from dray.daemons.migrator import stragglers
from dray.migration.live.stragglers import Straggler, StragglersLeft, Straggling

RECORD = Straggler(0, 10, 1_790_000_000_000, b"k", 7)
NOTHING = StragglersLeft({}, [], are_all=True)
RECORDS = StragglersLeft({0: Straggling(10, 12, 12)}, [RECORD], are_all=True)
MARKERS = StragglersLeft({0: Straggling(10, 12, 12)}, [], are_all=True)
UNDECIDED = StragglersLeft({0: Straggling(10, 12, 10), 2: Straggling(5, 9, 7)}, [], are_all=True)


@pytest.mark.parametrize(
    ("found", "options", "produced", "fails"),
    [
        (NOTHING, [], False, None),
        (NOTHING, ["--produce"], False, None),
        (RECORDS, [], False, "add --produce"),
        (RECORDS, ["--produce", "--execute"], True, None),
        (MARKERS, [], False, None),
        (MARKERS, ["--produce"], True, None),
        # Exit code 0 would say that nothing is left, and its records may yet be committed.
        (UNDECIDED, [], False, r"a transaction is open .* \(partitions 0, 2\)"),
        (UNDECIDED, ["--produce"], True, "a transaction is open"),
    ],
)
def test_it_ends_well_only_where_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch,
    found: StragglersLeft,
    options: list[str],
    produced: bool,
    fails: str | None,
) -> None:
    sent: list[str] = []

    def produce(_: object, topic: str, *__: Any) -> int:
        sent.append(topic)
        return len(found.shown)

    monkeypatch.setattr(stragglers, "look", lambda *_: found)
    monkeypatch.setattr(stragglers, "produce", produce)
    done = CliRunner().invoke(app, ["migrate", "stragglers", "orders", *options])
    assert sent == (["orders"] if produced else [])
    assert ("no record is left" in done.output) == (not found.shown and not found.undecided)
    assert ("with --produce they are not counted" in done.output) == (found is MARKERS and not produced)
    if fails is None:
        assert done.exception is None, done.output
        return
    assert isinstance(done.exception, Failure)
    with pytest.raises(Failure, match=fails):
        raise done.exception
