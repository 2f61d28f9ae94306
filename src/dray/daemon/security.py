"""From the config to what each listener asks of its clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from dray.api.dispatcher import Dispatcher
from dray.api.shared.sasl_gate import SaslGate
from dray.config import Settings
from dray.config.kinds import Address
from dray.config.listeners import SASL_MECHANISMS, TOKEN_MECHANISM, ListenerAddress
from dray.daemon.client_certificates import identifications, read_certificates
from dray.daemon.key_sets import KeySetFile, KeySource, key_source
from dray.daemon.watched_files import Refreshable, refresh_files
from dray.metadata.contract import MetadataStore
from dray.runtime import KeptTask, Runtime, keep_running
from dray.security.acls.authorization import Authorization
from dray.security.acls.store import Acls
from dray.security.audit import AuditLog
from dray.security.jwks import ClaimRules
from dray.security.principals import ANONYMOUS
from dray.security.quotas.store import Quotas
from dray.security.quotas.throttle import Throttle
from dray.security.sasl import plain
from dray.security.sasl.oauthbearer import OAuthBearerExchange
from dray.security.sasl.plain import PlainExchange
from dray.security.sasl.scram import ScramExchange, random_nonce
from dray.security.sasl.session import SaslSession
from dray.security.sasl.steps import SaslExchange
from dray.security.scram_credentials import Credentials, ScramMechanism, mechanism_of
from dray.security.users import Users

_log = structlog.get_logger(__name__)

_COUNTED_SECONDS: Final = 10.0

PASSWORD_MECHANISMS: Final = frozenset(SASL_MECHANISMS)


def warn_of_open_listeners(settings: Settings) -> None:
    """One line for every address beyond this machine where clients are not asked who they are."""
    listening: dict[str, Address] = {"broker.listen": settings.broker.listen}
    listening |= {
        f"broker.listeners.{name}": place
        for name, place in settings.broker.listeners.items()
        if not place.knows_clients
    }
    for key, address in listening.items():
        if not address.is_loopback:
            _log.warning(
                "clients are not asked who they are here: all that reach this address may do everything"
                if settings.security.authorization == "none"
                else "clients are not asked who they are here: all that reach it are User:ANONYMOUS",
                setting=key,
                address=str(address),
            )


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
        elif name == plain.NAME:
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
    """What a broker knows of users, ACLs, quotas, certificates and keys, and keeps up to date. Raises
    `CertificateUnusable` and `KeySetUnusable` where the files of the config cannot be used."""

    def __init__(self, settings: Settings, runtime: Runtime, store: MetadataStore) -> None:
        self._settings = settings
        self._runtime = runtime
        self.users = Users(store, runtime)
        self.authorization = authorization(settings, runtime, store)
        self.quotas = Quotas(store, runtime)
        self.throttle = Throttle(self.quotas.table)
        self.certificates = read_certificates(settings)
        self.identifications = identifications(settings, self._audit)
        self._key_set = key_source(settings, runtime)
        self._following: list[KeptTask] = []

    @property
    def _audit(self) -> AuditLog | None:
        return None if self.authorization is None else self.authorization.audit

    async def start(self) -> None:
        await self.users.start()
        warn_of_absent_super_users(self._settings, self.users)
        if self.authorization is not None:
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
