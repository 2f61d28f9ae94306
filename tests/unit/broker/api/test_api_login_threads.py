"""Where passwords are hashed: never on the event loop, which all clients share."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from tests.unit.broker.api.fakes import FakeConnection, frame, running

from dray.broker.api.shared import sasl_gate
from dray.broker.api.shared.errors import RefuseConnection
from dray.broker.api.shared.sasl_gate import SaslGate
from dray.broker.security.sasl import SaslSession
from dray.broker.security.users import Upsertion
from dray.kafka.protocol import Request
from dray.kafka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from dray.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest
from dray.kafka.sasl.client import ClientCredential, begin_exchange
from dray.kafka.sasl.credentials import ScramMechanism, make_credential
from dray.kafka.sasl.server import PlainExchange, ScramExchange

SHA_512 = ScramMechanism.SHA_512
LISTENER = "SECURE"


@pytest.mark.parametrize(("mechanism", "hashed"), [("SCRAM-SHA-512", 0), ("PLAIN", 1)])
@pytest.mark.parametrize("password", ["pencil", "wrong"])
async def test_no_password_is_hashed_on_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, mechanism: str, hashed: int, password: str
) -> None:
    """SCRAM leaves the slow hashing to the client; PLAIN's is done in a thread, be the password right or
    not."""
    async with running() as broker:
        credential = make_credential(SHA_512, "pencil", Random(1))
        await broker.users.put(Upsertion("alice", SHA_512, credential))

        def session() -> SaslSession:
            return SaslSession(
                {
                    "PLAIN": lambda: PlainExchange(broker.users),
                    "SCRAM-SHA-512": lambda: ScramExchange(SHA_512, broker.users, lambda: "nonce"),
                }
            )

        gate = SaslGate(broker.dispatcher, {LISTENER: session}, broker.runtime)
        connection = FakeConnection(LISTENER)
        loop_thread, threads = threading.get_ident(), []
        slow = hashlib.pbkdf2_hmac
        serving = False

        def noted(*arguments: Any, **named: Any) -> bytes:
            if serving:
                threads.append(threading.get_ident())
            return slow(*arguments, **named)

        monkeypatch.setattr(hashlib, "pbkdf2_hmac", noted)

        async def ask(request: Request[Any], version: int) -> Any:
            nonlocal serving
            serving = True
            try:
                answer = await gate.dispatch(frame(request, version), connection)
            finally:
                serving = False
            assert answer is not None
            return broker.decode(request, version, answer)

        await ask(SaslHandshakeRequest(mechanism), 1)
        exchange = begin_exchange(ClientCredential(mechanism, "alice", password), Random(2))
        token: bytes | None = exchange.begin()
        try:
            while token is not None:
                token = exchange.answer(bytes((await ask(SaslAuthenticateRequest(token), 2)).auth_bytes))
        except Exception:
            assert password == "wrong"
        assert exchange.is_complete == (password == "pencil")
        assert len(threads) == hashed
        assert loop_thread not in threads


async def test_a_flood_of_guesses_by_one_address_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, all waited in one line: 300 that guess made a login take seconds. What is counted are turns."""
    async with running() as broker:
        await broker.users.put(Upsertion("alice", SHA_512, make_credential(SHA_512, "pencil", Random(1))))
        gate = SaslGate(
            broker.dispatcher,
            {LISTENER: lambda: SaslSession({"PLAIN": lambda: PlainExchange(broker.users)})},
            broker.runtime,
        )
        monkeypatch.setattr(sasl_gate, "REFUSAL_DELAY_SECONDS", 0.0)
        verified: list[str] = []
        at_once: list[int] = []

        async def log_in(address: str, password: str) -> None:
            connection = FakeConnection(LISTENER)
            connection.peer = f"{address}:4711"
            await gate.dispatch(frame(SaslHandshakeRequest("PLAIN"), 1), connection)
            with suppress(RefuseConnection):
                await gate.dispatch(
                    frame(SaslAuthenticateRequest(b"\0alice\0" + password.encode()), 2), connection
                )
            verified.append(address)
            at_once.append(gate.turns.running)

        flood = [asyncio.create_task(log_in("10.0.0.1", "guess")) for _ in range(100)]
        async with asyncio.timeout(60):
            while gate.turns.waiting_of("10.0.0.1") < 90:  # noqa: ASYNC110 - plain state of the gate
                await asyncio.sleep(0)
        before = len(verified)
        await asyncio.wait_for(log_in("10.0.0.2", "pencil"), 60)
        assert len(verified) - before < 15, "four that have a turn, a few that had one, and no hundred"
        assert gate.turns.waiting_of("10.0.0.1") > 50
        await asyncio.wait_for(asyncio.gather(*flood), 60)
        assert max(at_once[10:]) <= 1, "logins of that address fail, so it has one turn at a time"
