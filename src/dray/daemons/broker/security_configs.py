"""Security as a Kafka client sees it when it describes the broker: our settings under Kafka's names. The
configs of one listener are shown under its prefix, as Kafka shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from dray.daemons.config import Settings
from dray.daemons.config.listeners import CLIENT_AUTH, TOKEN_MECHANISM, ListenerAddress

AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def security_configs(settings: Settings) -> dict[str, str]:
    """Only what differs from Kafka's defaults, or is set: the rest is as Kafka has it."""
    shown: dict[str, str] = {}
    security, listeners = settings.security, settings.broker.listeners
    if security.authorization != "none":
        shown["authorizer.class.name"] = AUTHORIZER
        shown["super.users"] = ";".join(security.super_users)
        shown["allow.everyone.if.no.acl.found"] = str(security.allow_if_no_acl).lower()
    if listeners:
        protocols = {name: each.protocol for name, each in settings.broker.all_listeners.items()}
        shown["listener.security.protocol.map"] = ",".join(f"{one}:{by}" for one, by in protocols.items())
    mechanisms = dict.fromkeys(one for each in listeners.values() for one in each.mechanisms)
    if mechanisms:
        shown["sasl.enabled.mechanisms"] = ",".join(mechanisms)
    if settings.broker.longest_session is not None:
        shown["connections.max.reauth.ms"] = str(round(settings.broker.longest_session * 1000))
    client_auth = [each.client_auth for each in listeners.values() if each.encrypts]
    if client_auth:
        shown["ssl.client.auth"] = min(client_auth, key=CLIENT_AUTH.index)  # what all of them ask for
    if TOKEN_MECHANISM in mechanisms:
        shown |= _of_tokens(settings)
    for name, listener in listeners.items():
        for key, value in _of_listener(listener).items():
            shown[f"listener.name.{name.lower()}.{key}"] = value
    return shown


def _of_listener(listener: ListenerAddress) -> dict[str, str]:
    shown = {}
    if listener.asks:
        shown["sasl.enabled.mechanisms"] = ",".join(listener.mechanisms)
    if listener.encrypts:
        shown["ssl.client.auth"] = listener.client_auth
    if listener.identifies:
        shown["ssl.principal.mapping.rules"] = listener.mapping_rules
    if listener.connections is not None:
        shown["max.connections"] = str(listener.connections)
    return shown


def _of_tokens(settings: Settings) -> dict[str, str]:
    oauth = settings.oauth
    file = None if oauth.key_set_file is None else Path(oauth.key_set_file).absolute().as_uri()
    shown = {
        "sasl.oauthbearer.jwks.endpoint.url": oauth.key_set_url or file,
        "sasl.oauthbearer.jwks.endpoint.refresh.ms": str(round(oauth.key_set_refresh * 1000)),
        "sasl.oauthbearer.expected.issuer": oauth.issuer,
        "sasl.oauthbearer.expected.audience": oauth.audiences,
        "sasl.oauthbearer.sub.claim.name": oauth.subject_claim,
    }
    return {name: value for name, value in shown.items() if value is not None}
