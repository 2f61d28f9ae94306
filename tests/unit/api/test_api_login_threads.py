"""Where passwords are hashed: never on the event loop, which all clients share."""

from __future__ import annotations

import hashlib
import threading
from random import Random
from typing import Any

import pytest
from tests.unit.api.fakes import FakeConnection, frame, running

from dray.api.shared.sasl_gate import SaslGate
from dray.protocol import Request
from dray.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from dray.protocol.messages.sasl_handshake import SaslHandshakeRequest
from dray.security.sasl.client import ClientCredential, begin_exchange
from dray.security.sasl.plain import PlainExchange
from dray.security.sasl.scram import ScramExchange
from dray.security.sasl.session import SaslSession
from dray.security.scram_credentials import ScramMechanism, make_credential
from dray.security.users import Upsertion

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
