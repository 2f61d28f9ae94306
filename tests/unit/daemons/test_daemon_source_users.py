"""Which quotas and users of a source are not here, and how quotas come over."""

from __future__ import annotations

from typing import Any, cast

import pytest

from dray.base.runtime import SystemRuntime
from dray.daemons.migrator.source_security import HeldHere, SourceUsers, carry_quotas, compare_users, held_in
from dray.kafka.client.cluster import Cluster
from dray.kafka.client.errors import RequestFailed
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from dray.kafka.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from dray.kafka.quotas import entity_of
from dray.metadata.memory import MemoryStore
from dray.migration.attach.found import MigrationRefused


class Source:
    """A cluster with quotas and users."""

    def __init__(self, quotas: int = 0, users: int = 0) -> None:
        self.codes = quotas, users

    async def request(self, request: Any) -> Any:
        if isinstance(request, DescribeClientQuotasRequest):
            entries = [
                entry({"user": "alice"}, producer_byte_rate=1000.0, consumer_byte_rate=2000.0),
                entry({"client-id": None}, request_percentage=50.0),
                entry({"user": "alice", "client-id": "batch"}, producer_byte_rate=0.0),
                entry({"flavour": "sweet"}, producer_byte_rate=5.0),
            ]
            return DescribeClientQuotasResponse(error_code=self.codes[0], entries=entries)
        assert isinstance(request, DescribeUserScramCredentialsRequest)
        return DescribeUserScramCredentialsResponse(
            error_code=self.codes[1],
            results=[
                DescribeUserScramCredentialsResult(user=name, credential_infos=[CredentialInfo(number, 4096)])
                for name, number in (("bob", 1), ("alice", 2))
            ],
        )


def entry(entity: dict[str, str | None], **values: float) -> EntryData:
    return EntryData(
        [EntityData(kind, name) for kind, name in entity.items()],
        [ValueData(key, value) for key, value in values.items()],
    )


async def compared(source: Source, here: HeldHere = HeldHere()) -> SourceUsers:  # noqa: B008 - it is frozen
    return await compare_users(cast(Cluster, source), here)


async def test_what_nobody_has_set_here_is_named_and_what_somebody_has_stays() -> None:
    found = await compared(Source())
    assert [each.text for each in found.quotas] == [
        "quotas of client-id (default): request_percentage = 50",
        "quotas of user alice: producer_byte_rate = 1000, consumer_byte_rate = 2000",
    ], "neither what Dray does not know nor what it would refuse"
    assert found.users == {"alice": ["SCRAM-SHA-512"], "bob": ["SCRAM-SHA-256"]}
    alice = {entity_of({"user": "alice"}): {"producer_byte_rate": 7.0}}
    found = await compared(Source(), HeldHere(alice, frozenset({"bob"})))
    assert found.quotas[1].values == {"consumer_byte_rate": 2000.0}
    assert set(found.users) == {"alice"}


async def test_a_source_that_does_not_show_them_is_a_note_and_no_failure() -> None:
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    found = await compared(Source(denied, denied))
    assert found.quotas == ()
    assert not found.users
    assert found.unseen == (
        "the source does not show its quotas: the migrator's user needs DESCRIBE_CONFIGS on its cluster",
        "the source does not show its users with SCRAM passwords: the migrator's user needs DESCRIBE on its "
        "cluster",
    )
    found.check(carries=False)
    with pytest.raises(MigrationRefused, match="--quotas: the source does not show its quotas"):
        found.check(carries=True)
    with pytest.raises(RequestFailed):
        await compared(Source(ErrorCode.NOT_CONTROLLER))


async def test_quotas_come_over_and_are_missing_no_more() -> None:
    runtime = SystemRuntime(threads=1)
    store = MemoryStore(runtime)
    try:
        for expected in (2, 0):
            async with held_in(store, runtime) as here:
                found = await compared(Source(), here)
            assert len(found.quotas) == expected
            await carry_quotas(store, runtime, found.quotas)
    finally:
        runtime.close()
