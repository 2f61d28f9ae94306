"""The record of a migration, as it is stored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.services.two_builds import MIGRATION

from dray.metadata.values import UnreadableValue
from dray.migration.attach.found import MigrationRefused
from dray.migration.record import MigrationState, decode_migration, encode_migration

VALUE = Path(__file__).parents[2] / "fixtures" / "values" / "migration.v1.bin"


def test_a_migration_is_stored_as_it_always_was() -> None:
    assert encode_migration(MIGRATION) == VALUE.read_bytes()
    assert decode_migration("orders", VALUE.read_bytes()) == MIGRATION


def test_what_is_cut_short_or_newer_is_unreadable() -> None:
    value = VALUE.read_bytes()
    for broken in (value[:-2], b"\x02" + value[1:], b"\x01{}"):
        with pytest.raises(UnreadableValue, match="the migration of topic 'orders'"):
            decode_migration("orders", broken)


@pytest.mark.parametrize("state", MigrationState)
def test_there_is_no_way_back_once_it_is_published(state: MigrationState) -> None:
    for late in (MigrationState.PUBLISHING, MigrationState.ATTACHED):
        record = replace(MIGRATION, state=late)
        if (late, state) == (MigrationState.PUBLISHING, MigrationState.ATTACHED):
            assert record.to(state).state is state
        else:
            with pytest.raises(MigrationRefused):
                record.to(state)
