"""`drayd admin quota`: straight in the store, and through a broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.api.fakes import Harness, running

from dray.cli.main import main
from dray.kafka.client.access import alter_quotas, list_quotas
from dray.kafka.client.errors import RequestFailed


def quota(data: Path, *arguments: str) -> None:
    """Raises `SystemExit` where the command fails."""
    try:
        main(["admin", "quota", *arguments, "--data-dir", str(data)])
    except SystemExit as ended:
        if ended.code != 0:
            raise


def listed(data: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> list[Any]:
    capsys.readouterr()
    quota(data, "list", "--json", *arguments)
    return [(one["entity"], one["quotas"]) for one in json.loads(capsys.readouterr().out)]


APP = ({"user": "app"}, {"producer_byte_rate": 1024.0, "request_percentage": 12.5})
BOTH = ({"client-id": None, "user": "app"}, {"consumer_byte_rate": 5.0})
ADDRESSES = ({"ip": None}, {"connection_creation_rate": 3.0})


def test_quotas_are_set_listed_and_deleted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "data"
    quota(data, "set", "producer_byte_rate=1024", "request_percentage=12.5", "--user", "app", "--dry-run")
    assert "nothing was set" in capsys.readouterr().out
    assert listed(data, capsys) == []
    quota(data, "set", "producer_byte_rate=1024", "request_percentage=12.5", "--user", "app")
    quota(data, "set", "consumer_byte_rate=5", "--user", "app", "--default-client-id")
    quota(data, "set", "connection_creation_rate=3", "--default-ip")
    assert listed(data, capsys) == [BOTH, ADDRESSES, APP]
    assert listed(data, capsys, "--user", "app") == [BOTH, APP]
    assert listed(data, capsys, "--default-ip") == [ADDRESSES]
    quota(data, "list")
    shown = capsys.readouterr().out
    assert "(default)" in shown
    assert "12.5" in shown
    quota(data, "delete", "--user", "app")
    assert "nothing was deleted: add --execute" in capsys.readouterr().out
    assert len(listed(data, capsys)) == 3
    quota(data, "delete", "request_percentage", "--user", "app", "--execute")
    assert listed(data, capsys, "--user", "app") == [BOTH, ({"user": "app"}, {"producer_byte_rate": 1024.0})]
    quota(data, "delete", "--user", "app", "--execute")
    assert listed(data, capsys, "--user", "app") == [BOTH], "only of exactly this entity"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["set", "producer_byte_rate=1"], "give whose"),
        (["set", "producer_byte_rate", "--user", "a"], "must be a quota and its value"),
        (["set", "producer_byte_rate=many", "--user", "a"], "must be a quota and its value"),
        (["set", "producer_byte_rate=0", "--user", "a"], "must be greater than 0"),
        (["set", "speed=1", "--user", "a"], "Invalid configuration key speed"),
        (["set", "producer_byte_rate=1", "--user", "a", "--default-user"], "not both"),
        (["set", "producer_byte_rate=1", "--ip", "1.2.3.4"], "Invalid configuration key"),
        (["set", "connection_creation_rate=1", "--ip", "here"], "is not a valid IP"),
        (["set", "producer_byte_rate=1", "--user", ""], "Empty user not supported"),
        (["delete"], "give whose"),
        (["delete", "--user", "nobody", "--execute"], "there are no such quotas"),
    ],
)
def test_a_mistake_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    with pytest.raises(SystemExit):
        quota(tmp_path / "data", *arguments)
    assert said in capsys.readouterr().err


class Caller:
    def __init__(self, broker: Harness) -> None:
        self._broker = broker

    async def request(self, request: Any, version: int | None = None) -> Any:
        return await self._broker.ask(request, request.VERSIONS[1] if version is None else version)


async def test_through_a_broker() -> None:
    async with running() as broker:
        caller: Any = Caller(broker)
        await alter_quotas(caller, [({"user": "app"}, {"producer_byte_rate": 1024.0})], validate_only=True)
        assert await list_quotas(caller, {}) == []
        await alter_quotas(caller, [({"user": "app"}, {"producer_byte_rate": 1024.0})])
        await alter_quotas(caller, [({"user": None}, {"producer_byte_rate": 5.0})])
        assert await list_quotas(caller, {"user": "app"}) == [
            ({"user": "app"}, {"producer_byte_rate": 1024.0})
        ]
        assert await list_quotas(caller, {"user": None}) == [({"user": None}, {"producer_byte_rate": 5.0})]
        with pytest.raises(RequestFailed, match="must be greater than 0"):
            await alter_quotas(caller, [({"user": "app"}, {"producer_byte_rate": -1.0})])
        await alter_quotas(caller, [({"user": "app"}, {"producer_byte_rate": None})])
        assert await list_quotas(caller, {"user": "app"}) == []
