"""The console without a socket: a request in, an answer out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlencode

from tests.unit.inspection.inspection_fakes import FakeBrokers, FakeKafka

from dray.base.runtime import SystemRuntime
from dray.console import ConsoleSettings, make_app
from dray.inspection.groups.lag_history import LagHistory
from dray.inspection.storage.scrape import ScrapeHistory
from dray.inspection.storage.stored import StoredCluster
from dray.inspection.storage.tables import ClusterTables

HOST = "127.0.0.1:9640"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class ConsoleClient:
    def __init__(
        self,
        kafka: FakeKafka,
        stored: StoredCluster | None = None,
        *,
        writable: bool = False,
        tables: ClusterTables | None = None,
        masked: Mapping[str, str] | None = None,
        history: ScrapeHistory | None = None,
        runs: Path | None = None,
    ) -> None:
        settings = ConsoleSettings(
            hosts=frozenset({HOST}), version="test", writable=writable, masked=masked or {}, runs=runs
        )
        brokers = FakeBrokers(kafka)
        self.lags = LagHistory(brokers, brokers.runtime)
        self.app = make_app(settings, brokers, stored, history, tables, self.lags)

    async def get(self, address: str, **headers: str) -> Answer:
        return await self.send("GET", address, b"", headers)

    async def post(self, address: str, form: Mapping[str, str] | None = None, **headers: str) -> Answer:
        given = {
            "content-type": "application/x-www-form-urlencoded",
            "sec_fetch_site": "same-origin",
        } | headers
        return await self.send("POST", address, urlencode(form or {}).encode(), given)

    async def send(self, method: str, address: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        path, _, query = address.partition("?")
        given = {"host": HOST} | {name.replace("_", "-"): value for name, value in headers.items()}
        scope = {
            "type": "http",
            "method": method,
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in given.items() if value],
            "scheme": "http",
            "server": ("127.0.0.1", 9640),
            "root_path": "",
        }
        sent: list[Any] = []
        pieces = [{"type": "http.request", "body": body, "more_body": False}]
        answered = asyncio.Event()

        async def receive() -> Any:
            if pieces:
                return pieces.pop(0)
            await answered.wait()  # a browser stays until it has its answer
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                answered.set()

        await self.app(scope, receive, send)
        start = sent[0]
        return Answer(
            start["status"],
            {name.decode().lower(): value.decode() for name, value in start["headers"]},
            b"".join(message.get("body", b"") for message in sent[1:]),
        )


class Clock(SystemRuntime):
    now = 0.0

    def monotonic(self) -> float:
        return self.now


class OwnBrokers(FakeBrokers):
    closed = False

    async def close(self) -> None:
        self.closed = True
