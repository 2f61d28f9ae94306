"""The console's own certificate, and what its answers tell browsers to keep."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.responses import PlainTextResponse
from tests.services.authorities import Authority, Identity, common_name

from dray.base.runtime import SystemRuntime
from dray.console.security import Gate
from dray.daemons.assembly import watched_files
from dray.daemons.assembly.process import StopSignals
from dray.daemons.config import FlagValue, load
from dray.daemons.console.process import _serve


class Stop:
    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def wait(self) -> None:
        await self.asked.wait()


HOST = "console.example"


async def said(port: int, trust: ssl.SSLContext, host: str = HOST) -> tuple[str, str]:
    """The name in the certificate, and the head of an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust)
    name = common_name(writer.get_extra_info("ssl_object").getpeercert(True))
    writer.write(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    head = (await reader.read()).decode()
    writer.close()
    return name, head


async def test_a_new_certificate_is_used_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_files, "REFRESH_SECONDS", 0.05)
    authority = Authority(tmp_path / "authority")
    first, second = (authority.issue(f"CN={name}", ("127.0.0.1",)) for name in ("first", "second"))
    place = Identity(tmp_path / "c.pem", tmp_path / "k.pem", tmp_path / "both", 0)

    def put(identity: Identity) -> None:
        shutil.copy(identity.key, place.key)
        shutil.copy(identity.certificate, place.certificate)

    put(first)
    flags = {"console.certificate_file": place.certificate, "console.key_file": place.key}
    console = load(
        None, {}, [FlagValue("--t", key, str(path)) for key, path in flags.items()]
    ).settings.console
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    runtime, stop = SystemRuntime(threads=2), Stop()
    app: Any = Gate(PlainTextResponse("page"), frozenset({HOST, "localhost"}), "https")
    serving = asyncio.create_task(_serve(app, listening, cast(StopSignals, stop), runtime, console))
    trust = ssl.create_default_context(cafile=str(authority.file))
    try:
        name, head = await said(port, trust)
        assert name == "first"
        assert "strict-transport-security: max-age=31536000" in head.lower()
        put(second)
        async with asyncio.timeout(60):
            while (await said(port, trust))[0] != "second":
                pass
        name, head = await said(port, trust, "localhost")
        assert "strict-transport-security" not in head.lower(), "it would hold for all ports of this machine"
    finally:
        stop.asked.set()
        await serving
        runtime.close()
