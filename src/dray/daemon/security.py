"""From the config to what each listener asks of its clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dray.config import Settings
from dray.config.kinds import ListenerAddress
from dray.runtime import Runtime
from dray.security.sasl import plain
from dray.security.sasl.plain import PlainExchange
from dray.security.sasl.scram import ScramExchange, random_nonce
from dray.security.sasl.session import SaslSession
from dray.security.sasl.steps import SaslExchange
from dray.security.scram_credentials import Credentials, ScramMechanism, mechanism_of


def sasl_sessions(
    settings: Settings, users: Credentials, runtime: Runtime
) -> dict[str, Callable[[], SaslSession]]:
    """By the name of a listener that asks who its clients are: what makes the session of a new connection."""
    longest = settings.broker.longest_session
    longest_ms = 0 if longest is None else round(longest * 1000)

    def maker(listener: ListenerAddress) -> Callable[[], SaslSession]:
        mechanisms = _mechanisms(listener, users, runtime)
        return lambda: SaslSession(mechanisms, longest_session_ms=longest_ms)

    return {name: maker(listener) for name, listener in settings.broker.listeners.items() if listener.asks}


def _mechanisms(
    listener: ListenerAddress, users: Credentials, runtime: Runtime
) -> Mapping[str, Callable[[], SaslExchange]]:
    def scram(mechanism: ScramMechanism) -> Callable[[], SaslExchange]:
        return lambda: ScramExchange(mechanism, users, lambda: random_nonce(runtime.random))

    found: dict[str, Callable[[], SaslExchange]] = {}
    for name in listener.mechanisms:
        mechanism = mechanism_of(name)
        if mechanism is not None:
            found[name] = scram(mechanism)
        else:
            assert name == plain.NAME
            found[name] = lambda: PlainExchange(users)
    return found
