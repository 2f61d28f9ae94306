"""Listeners: where clients connect, how, and what they are asked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from dray.base.config.kinds import Address, AddressMap, HostPort, InvalidValue, Kind, unfolded
from dray.broker.settings import ZONE_NAME

PLAINTEXT: Final = "PLAINTEXT"
"""The name of the listener of `broker.listen`. It is Kafka's own: tools look whether there is one."""
LISTENER_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SASL_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
TOKEN_MECHANISM: Final = "OAUTHBEARER"
CLIENT_AUTH: Final = ("none", "requested", "required")

_FORMS: Final = "HOST:PORT, or {address: HOST:PORT, protocol: SASL_PLAINTEXT, mechanisms: [SCRAM-SHA-512]}"
_PAIR: Final = ("certificate_file", "key_file")
_TLS_KEYS: Final = (*_PAIR, "further_certificates", "client_auth", "client_ca_file", "mapping_rules")


@dataclass(frozen=True)
class CertificateFiles:
    certificate_file: str
    key_file: str


@dataclass(frozen=True)
class ListenerAddress(Address):
    """With whether it is encrypted, and whether clients have to say who they are."""

    protocol: str = "PLAINTEXT"
    mechanisms: tuple[str, ...] = ()
    certificate_file: str = ""
    key_file: str = ""
    further_certificates: tuple[CertificateFiles, ...] = ()
    client_auth: str = "none"
    client_ca_file: str = ""
    mapping_rules: str = "DEFAULT"
    connections: int | None = None
    zone: str = ""
    """Of the clients that come through it."""

    @property
    def asks(self) -> bool:
        """By SASL, over the open connection."""
        return self.protocol.startswith("SASL")

    @property
    def encrypts(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def identifies(self) -> bool:
        """By the certificates of clients."""
        return self.client_auth != "none" and not self.asks

    @property
    def knows_clients(self) -> bool:
        """Nobody does anything here without a name, or a certificate."""
        return self.asks or self.client_auth == "required"


@dataclass(frozen=True)
class ListenerPlace(Kind):
    """HOST:PORT, or a mapping; an environment variable holds it as JSON."""

    free_port: bool = False

    def parse(self, value: Any) -> ListenerAddress:
        if isinstance(value, ListenerAddress):
            return value
        value = unfolded(value)
        if not isinstance(value, Mapping):
            place = HostPort(self.free_port).parse(value)
            return ListenerAddress(place.host, place.port)
        return self._parse_mapping(value)

    def _parse_mapping(self, value: Mapping[Any, Any]) -> ListenerAddress:
        protocol = value.get("protocol", "PLAINTEXT")
        if protocol not in LISTENER_PROTOCOLS:
            raise InvalidValue(f"a mapping whose protocol is one of {', '.join(LISTENER_PROTOCOLS)}")
        address = HostPort(self.free_port).parse(value.get("address"))
        kind = ListenerAddress(address.host, address.port, protocol)
        known = ["address", "protocol", "connections", "zone"]
        known += ["mechanisms"] if kind.asks else []
        known += _TLS_KEYS if kind.encrypts else []
        unknown = [str(key) for key in value if key not in known]
        if unknown:
            raise InvalidValue(
                f"a mapping without {', '.join(unknown)}: with {protocol} it has {', '.join(known)}"
            )
        return ListenerAddress(
            address.host,
            address.port,
            protocol,
            _mechanisms(value) if kind.asks else (),
            **(_encryption(value, kind.asks) if kind.encrypts else {}),
            connections=_connections(value),
            zone=_zone(value),
        )

    def allowed(self) -> str:
        return _FORMS

    def render(self, value: Any) -> Any:
        if value == ListenerAddress(value.host, value.port):
            return str(value)
        shown: dict[str, Any] = {"address": str(value), "protocol": value.protocol}
        if value.asks:
            shown["mechanisms"] = list(value.mechanisms)
        if value.encrypts:
            shown |= {key: getattr(value, key) for key in _PAIR}
        if value.further_certificates:
            shown["further_certificates"] = [
                {key: getattr(pair, key) for key in _PAIR} for pair in value.further_certificates
            ]
        defaults = {field.name: field.default for field in fields(ListenerAddress)}
        for key in ("client_auth", "client_ca_file", "mapping_rules", "connections", "zone"):
            if getattr(value, key) != defaults[key]:
                shown[key] = getattr(value, key)
        return shown


def _mechanisms(value: Mapping[Any, Any]) -> tuple[str, ...]:
    chosen, served = value.get("mechanisms", SASL_MECHANISMS), (*SASL_MECHANISMS, TOKEN_MECHANISM)
    if not isinstance(chosen, list | tuple) or not chosen or not all(name in served for name in chosen):
        raise InvalidValue(f"a mapping whose mechanisms are a list of {', '.join(served)}")
    return tuple(dict.fromkeys(chosen))


def _encryption(value: Mapping[Any, Any], asks: bool) -> dict[str, Any]:
    found: dict[str, Any] = dict(_pair(value))
    further = value.get("further_certificates", [])
    if not isinstance(further, list | tuple) or not all(isinstance(one, Mapping) for one in further):
        raise InvalidValue("a mapping whose further_certificates are a list of {certificate_file, key_file}")
    found["further_certificates"] = tuple(CertificateFiles(**_pair(one)) for one in further)
    auth, authorities = value.get("client_auth", "none"), value.get("client_ca_file", "")
    if auth not in CLIENT_AUTH:
        raise InvalidValue(f"a mapping whose client_auth is one of {', '.join(CLIENT_AUTH)}")
    if not isinstance(authorities, str) or bool(authorities) != (auth != "none"):
        raise InvalidValue(
            "a mapping with client_ca_file, the authorities of the clients' certificates, where client_auth "
            "is requested or required, and without it elsewhere"
        )
    rules = value.get("mapping_rules", "DEFAULT")
    if not isinstance(rules, str) or not rules or ("mapping_rules" in value and (auth == "none" or asks)):
        raise InvalidValue(
            "a mapping whose mapping_rules are text, with client_auth and the protocol SSL: with SASL_SSL, "
            "SASL says who a client is"
        )
    return {**found, "client_auth": auth, "client_ca_file": authorities, "mapping_rules": rules}


def _pair(value: Mapping[Any, Any]) -> dict[str, str]:
    found = {key: value.get(key) for key in _PAIR}
    if not all(isinstance(path, str) and path for path in found.values()):
        raise InvalidValue("a mapping with certificate_file and key_file, the paths of PEM files")
    return {key: str(path) for key, path in found.items()}


def _connections(value: Mapping[Any, Any]) -> int | None:
    most = value.get("connections")
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise InvalidValue("a mapping whose connections are a whole number from 1 on")
    return most


def _zone(value: Mapping[Any, Any]) -> str:
    zone = value.get("zone", "")
    if zone != "" and (not isinstance(zone, str) or re.fullmatch(ZONE_NAME, zone) is None):
        raise InvalidValue("a mapping whose zone is 1 to 100 letters, digits, '.', '_' or '-'")
    return str(zone)


class ListenerMap(AddressMap):
    """Listeners by name."""

    def __init__(self, meaning: str) -> None:
        super().__init__(meaning, free_port=True)
        self._place = ListenerPlace(free_port=True)

    def render(self, value: Any) -> Any:
        return {name: self._place.render(place) for name, place in value.items()}

    def _text(self, value: Any) -> Any:
        return self._place.parse(value)
