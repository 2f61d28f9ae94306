"""From the config to what each listener asks of its clients: certificates, passwords, tokens."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

import structlog

from dray.base.https import parse_address
from dray.base.runtime import KeptTask, Runtime, keep_running
from dray.broker.api.dispatcher import Dispatcher
from dray.broker.api.shared.sasl_gate import SaslGate
from dray.broker.groups.coordinator import Groups
from dray.broker.security.acls.authorization import Authorization, host_of
from dray.broker.security.acls.store import Acls
from dray.broker.security.audit import AUTHENTICATE, LISTENER, AuditedAct, AuditLog
from dray.broker.security.jwks import (
    LARGEST_KEY_SET,
    ClaimRules,
    InvalidKeySet,
    KeySet,
    KeySetAddress,
    fetch_from,
)
from dray.broker.security.principals import (
    ANONYMOUS,
    InvalidRule,
    MappingRules,
    NoRuleApplies,
    UnreadableCertificate,
    distinguished_name,
    user,
)
from dray.broker.security.quotas.store import Quotas
from dray.broker.security.quotas.throttle import Throttle
from dray.broker.security.sasl import OAuthBearerExchange, SaslSession
from dray.broker.security.users import Users
from dray.broker.server.tls.handshakes import PeerRefused
from dray.broker.server.tls.listener import CertificatePair, CertificateUnusable, ServerCertificate
from dray.broker.topics import Topics
from dray.daemons.assembly.watched_files import FileUnusable, Refreshable, WatchedFile, refresh_files
from dray.daemons.config import Settings
from dray.daemons.config.listeners import SASL_MECHANISMS, TOKEN_MECHANISM, ListenerAddress
from dray.kafka.acls import AclResourceType
from dray.kafka.sasl.credentials import Credentials, ScramMechanism, mechanism_of
from dray.kafka.sasl.server import PLAIN, PlainExchange, SaslExchange, ScramExchange, random_nonce
from dray.metadata.contract import MetadataStore

_log = structlog.get_logger(__name__)

_COUNTED_SECONDS: Final = 10.0

PASSWORD_MECHANISMS: Final = frozenset(SASL_MECHANISMS)


def known_resources(topics: Topics, groups: Groups) -> Callable[[AuditedAct], bool]:
    """Names that no client makes up at will: the audit log has room for all of them."""
    looks: dict[str, Callable[[str], bool]] = {
        AclResourceType.TOPIC.name: lambda name: topics.cached(name) is not None,
        AclResourceType.GROUP.name: groups.is_active,
        AclResourceType.CLUSTER.name: lambda _: True,
    }
    return lambda act: act.resource in looks and looks[act.resource](act.name)


def warn_of_open_listeners(settings: Settings) -> None:
    """One line for every address beyond this machine where clients are not asked who they are."""
    for key, address in settings.broker.open_listeners.items():
        if not address.is_loopback:
            _log.warning(
                "clients are not asked who they are here: all that reach this address may do everything"
                if settings.security.authorization == "none"
                else "clients are not asked who they are here: all that reach it are User:ANONYMOUS",
                setting=key,
                address=str(address),
            )


def warn_of_weak_logins(settings: Settings) -> None:
    """One line each for what whoever listens on the wire could take, and for tokens that were made for
    others."""
    listeners = settings.broker.listeners
    for name, place in listeners.items():
        shown = [one for one in place.mechanisms if one in (PLAIN, TOKEN_MECHANISM)]
        if shown and not place.encrypts and not place.is_loopback:
            _log.warning(
                "passwords or tokens come in clear here: set protocol: SASL_SSL, or other mechanisms",
                setting=f"broker.listeners.{name}",
                mechanisms=shown,
            )
    if not any(TOKEN_MECHANISM in place.mechanisms for place in listeners.values()):
        return
    for key, value in (
        ("oauth.audiences", settings.oauth.audiences),
        ("oauth.issuer", settings.oauth.issuer),
    ):
        if value is None:
            _log.warning("tokens that were made for another application are taken: set it", setting=key)


def warn_of_absent_super_users(settings: Settings, users: Credentials) -> None:
    """One line where no super user could log in: a forgotten `drayd admin user add`, or another data
    directory. Users of tokens and certificates are not known here."""
    security = settings.security
    if security.authorization == "none" or ANONYMOUS in security.super_users:
        return
    asking = [place for place in settings.broker.listeners.values() if place.asks]
    names = [principal.removeprefix("User:") for principal in security.super_users]
    by_certificate = any(place.identifies for place in settings.broker.listeners.values())
    if not asking and not by_certificate:
        _log.warning(
            "no listener asks clients who they are, so all are User:ANONYMOUS, and none is a super user: "
            "give broker.listeners one with protocol SASL_PLAINTEXT or SASL_SSL, or with client_auth",
            super_users=list(security.super_users),
        )
    elif (
        not by_certificate
        and all(set(place.mechanisms) <= PASSWORD_MECHANISMS for place in asking)
        and not any(users.of(name) for name in names)
    ):
        _log.warning(
            "no super user has a password yet, so none can log in: add one with drayd admin user add "
            f"{names[0]} --password-file FILE --data-dir {settings.data_dir}",
            super_users=list(security.super_users),
        )


def sasl_sessions(
    settings: Settings, users: Credentials, runtime: Runtime, key_set: KeySource | None = None
) -> dict[str, Callable[[], SaslSession]]:
    """By the name of a listener that asks who its clients are: what makes the session of a new connection."""
    longest = settings.broker.longest_session
    longest_ms = 0 if longest is None else round(longest * 1000)
    rules = claim_rules(settings)

    def maker(listener: ListenerAddress) -> Callable[[], SaslSession]:
        mechanisms = _mechanisms(listener, users, runtime)
        if TOKEN_MECHANISM in listener.mechanisms and key_set is not None:
            mechanisms[TOKEN_MECHANISM] = lambda: OAuthBearerExchange(
                lambda: key_set.current, rules, runtime.wall_ms, key_set.want_newer
            )
        return lambda: SaslSession(mechanisms, longest_session_ms=longest_ms)

    return {name: maker(listener) for name, listener in settings.broker.listeners.items() if listener.asks}


def claim_rules(settings: Settings) -> ClaimRules:
    oauth = settings.oauth
    return ClaimRules(
        audiences=frozenset((oauth.audiences or "").split(",")) - {""},
        issuer=oauth.issuer,
        subject_claim=oauth.subject_claim,
    )


def _mechanisms(
    listener: ListenerAddress, users: Credentials, runtime: Runtime
) -> dict[str, Callable[[], SaslExchange]]:
    def scram(mechanism: ScramMechanism) -> Callable[[], SaslExchange]:
        return lambda: ScramExchange(mechanism, users, lambda: random_nonce(runtime.random))

    found: dict[str, Callable[[], SaslExchange]] = {}
    for name in listener.mechanisms:
        mechanism = mechanism_of(name)
        if mechanism is not None:
            found[name] = scram(mechanism)
        elif name == PLAIN:
            found[name] = lambda: PlainExchange(users)
    return found


def authorization(settings: Settings, runtime: Runtime, store: MetadataStore) -> Authorization | None:
    """None where every client may do everything, and none is asked who it is: an audit log would not know
    either."""
    security = settings.security
    if security.authorization == "none":
        asks = any(place.asks or place.identifies for place in settings.broker.listeners.values())
        return Authorization(None, runtime) if asks else None
    return Authorization(
        Acls(store, runtime), runtime, security.super_users, allow_if_no_acl=security.allow_if_no_acl
    )


class BrokerSecurity:
    """A broker's knowledge of users, ACLs, quotas, certificates and keys, kept up to date. Raises
    `CertificateUnusable` and `KeySetUnusable` where the files of the config cannot be used."""

    def __init__(self, settings: Settings, runtime: Runtime, store: MetadataStore) -> None:
        self._settings = settings
        self._runtime = runtime
        self.users = Users(store, runtime)
        self.authorization = authorization(settings, runtime, store)
        self.quotas = Quotas(store, runtime)
        self.throttle = Throttle(self.quotas.table)
        self.certificates = read_certificates(settings, runtime.wall_ms)
        self.identifications = identifications(settings, self._audit)
        self._key_set = key_source(settings, runtime)
        self._following: list[KeptTask] = []

    @property
    def _audit(self) -> AuditLog | None:
        return None if self.authorization is None else self.authorization.audit

    async def start(self, is_there: Callable[[AuditedAct], bool] = lambda _: False) -> None:
        """`is_there`: whether the resource of an audited act exists, as far as is known in memory."""
        await self.users.start()
        warn_of_absent_super_users(self._settings, self.users)
        if self.authorization is not None:
            self.authorization.audit.is_there = is_there
            if self.authorization.acls is not None:
                await self.authorization.acls.start()
            self._following.append(
                keep_running(self._runtime, "write what the audit log has counted", self._write_counted)
            )
        await self.quotas.start()
        files: dict[str, Refreshable] = dict(self.certificates)
        keys = self._key_set
        if isinstance(keys, KeySetFile):
            files["oauth.key_set_file"] = keys
        elif keys is not None:
            self._following.append(keep_running(self._runtime, "fetch the key set", keys.follow))
        if files:
            self._following.append(
                keep_running(
                    self._runtime,
                    "re-read certificates and keys",
                    lambda: refresh_files(files, self._runtime),
                )
            )

    async def _write_counted(self) -> None:
        while self._audit is not None:
            await self._runtime.sleep(_COUNTED_SECONDS)
            self._audit.write_counted()

    def guarded(self, dispatcher: Dispatcher) -> Dispatcher | SaslGate:
        """The dispatcher, behind a gate if any listener asks clients who they are. Else without one: a gate
        costs each request a look-up."""
        sessions = sasl_sessions(self._settings, self.users, self._runtime, self._key_set)
        return SaslGate(dispatcher, sessions, self._runtime, self._audit) if sessions else dispatcher

    def newcomer_wait(self, address: str) -> float:
        """For how many seconds a new connection of this address is held before it is closed; 0: it may come
        in."""
        if not self.quotas.table.keys:
            return 0.0
        return self.throttle.connect(address, round(self._runtime.monotonic() * 1000)) / 1000

    async def stop(self) -> None:
        for task in self._following:
            await task.stop()
        if self.authorization is not None:
            if self.authorization.acls is not None:
                await self.authorization.acls.stop()
            self.authorization.audit.write_counted(everything=True)
        await self.quotas.stop()
        await self.users.stop()


# --- certificates, and who a client with one is


_BY_CERTIFICATE: Final = "certificate"

Identify = Callable[[bytes | None, str], str | None]


def read_certificates(
    settings: Settings, wall_ms: Callable[[], int] = lambda: 0
) -> dict[str, ServerCertificate]:
    """By the name of a listener that encrypts. Raises `CertificateUnusable`."""
    encrypting = {name: place for name, place in settings.broker.listeners.items() if place.encrypts}
    found = {}
    for name, listener in encrypting.items():
        try:
            found[name] = _certificates_of(listener, wall_ms)
        except CertificateUnusable as error:
            raise CertificateUnusable(f"broker.listeners.{name}: {error}") from error
    return found


def _certificates_of(listener: ListenerAddress, wall_ms: Callable[[], int]) -> ServerCertificate:
    return ServerCertificate(
        Path(listener.certificate_file),
        Path(listener.key_file),
        further=tuple(
            CertificatePair(Path(pair.certificate_file), Path(pair.key_file))
            for pair in listener.further_certificates
        ),
        client_auth=listener.client_auth,
        client_authorities=Path(listener.client_ca_file) if listener.client_ca_file else None,
        wall_ms=wall_ms,
    )


def identifications(settings: Settings, audit: AuditLog | None = None) -> Mapping[str, Identify]:
    """By the name of a listener where the certificate says who a client is. Raises `CertificateUnusable`."""
    found = {}
    for name, listener in settings.broker.listeners.items():
        if listener.identifies:
            try:
                found[name] = identification(MappingRules(listener.mapping_rules), audit, name)
            except InvalidRule as error:
                raise CertificateUnusable(f"broker.listeners.{name}: mapping_rules: {error}") from error
    return found


def identification(rules: MappingRules, audit: AuditLog | None = None, listener: str = "") -> Identify:
    def principal_of(certificate: bytes | None, peer: str) -> str | None:
        """None: no certificate, where it is only asked for."""
        if certificate is None:
            return None
        name = ""
        try:
            name = distinguished_name(certificate)
            principal = rules.principal(name)
        except NoRuleApplies as error:
            note(user(name), peer, "no mapping rule applies")
            raise PeerRefused("no mapping rule applies", str(error)) from None
        except UnreadableCertificate as error:
            note("", peer, "unreadable certificate")
            raise PeerRefused("unreadable certificate", str(error)) from None
        note(principal, peer)
        return principal

    def note(principal: str, peer: str, failure: str | None = None) -> None:
        if audit is not None:
            about = _BY_CERTIFICATE if failure is None else f"{_BY_CERTIFICATE}: {failure}"
            audit.note(
                AuditedAct(failure is None, principal, host_of(peer), AUTHENTICATE, LISTENER, listener, about)
            )

    return principal_of


# --- keys that sign tokens: from a file, or from an address


class KeySetUnusable(FileUnusable):
    """One line: which file or address, and what is wrong with it."""


class KeySource(Protocol):
    """The source of keys, as they are now, with which tokens are verified."""

    @property
    def current(self) -> KeySet | None: ...

    def want_newer(self) -> None:
        """A token named a key that is not known."""


class KeySetFile(WatchedFile[KeySet]):
    def want_newer(self) -> None:
        """The file is looked at all the time."""

    def _parsed(self, path: Path) -> KeySet:
        with path.open("rb") as opened:
            data = opened.read(LARGEST_KEY_SET + 1)
        try:
            return KeySet(data)
        except InvalidKeySet as error:
            raise self._unusable(f"the key set {path} cannot be used: {error}") from error

    def _unusable(self, reason: str) -> KeySetUnusable:
        return KeySetUnusable(reason)


def key_source(settings: Settings, runtime: Runtime) -> KeySetFile | KeySetAddress | None:
    """None where no listener takes tokens. Raises `KeySetUnusable`."""
    oauth = settings.oauth
    if not any(TOKEN_MECHANISM in place.mechanisms for place in settings.broker.listeners.values()):
        return None
    if oauth.key_set_file is not None:
        try:
            return KeySetFile(Path(oauth.key_set_file))
        except KeySetUnusable as error:
            raise KeySetUnusable(f"oauth.key_set_file: {error}") from error
    if oauth.key_set_url is None:
        return None
    try:
        address = parse_address(oauth.key_set_url)
    except ValueError as error:
        raise KeySetUnusable(f"oauth.key_set_url: {error}") from error
    try:
        context = ssl.create_default_context(cafile=oauth.key_set_ca_file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it holds no certificates in PEM"
        raise KeySetUnusable(f"oauth.key_set_ca_file: {oauth.key_set_ca_file}: {reason}") from error
    return KeySetAddress(fetch_from(address, context), runtime, oauth.key_set_refresh)
