"""From the config to what each listener asks of its clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import structlog

from dray.api.dispatcher import Dispatcher
from dray.api.shared.sasl_gate import SaslGate
from dray.config import Settings
from dray.config.kinds import SASL_MECHANISMS, TOKEN_MECHANISM, Address, ListenerAddress
from dray.metadata.contract import MetadataStore
from dray.runtime import KeptTask, Runtime, keep_running
from dray.security.acls.authorization import Authorization
from dray.security.acls.store import Acls
from dray.security.jwks import LARGEST_KEY_SET, ClaimRules, InvalidKeySet, KeySet
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
from dray.server.tls import CertificateUnusable, ServerCertificate

_log = structlog.get_logger(__name__)

PASSWORD_MECHANISMS: Final = frozenset(SASL_MECHANISMS)
REFRESH_SECONDS: Final = 10.0
"""How often the files of certificates are looked at."""


def warn_of_open_listeners(settings: Settings) -> None:
    """One line for every address beyond this machine where clients are not asked who they are."""
    listening: dict[str, Address] = {"broker.listen": settings.broker.listen}
    listening |= {
        f"broker.listeners.{name}": place
        for name, place in settings.broker.listeners.items()
        if not place.asks
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
    if not asking and not any(place.encrypts for place in settings.broker.listeners.values()):
        _log.warning(
            "no listener asks clients who they are, so all are User:ANONYMOUS, and none is a super user: "
            "give broker.listeners one with protocol SASL_PLAINTEXT or SASL_SSL",
            super_users=list(security.super_users),
        )
    elif all(set(place.mechanisms) <= PASSWORD_MECHANISMS for place in asking) and not any(
        users.of(name) for name in names
    ):
        _log.warning(
            "no super user has a password yet, so none can log in: add one with drayd admin user add "
            f"{names[0]} --password-file FILE --data-dir {settings.data_dir}",
            super_users=list(security.super_users),
        )


def read_certificates(settings: Settings) -> dict[str, ServerCertificate]:
    """By the name of a listener that encrypts. Raises `CertificateUnusable`."""
    found = {}
    for name, listener in settings.broker.listeners.items():
        if listener.encrypts:
            try:
                found[name] = ServerCertificate(Path(listener.certificate_file), Path(listener.key_file))
            except CertificateUnusable as error:
                raise CertificateUnusable(f"broker.listeners.{name}: {error}") from error
    return found


class KeySetUnusable(Exception):
    """One line: which file, and what is wrong with it."""


class KeySetFile:
    """The keys that sign tokens, re-read when their file changes; a broken file leaves those that were read.
    Raises `KeySetUnusable`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self.current = self._read()

    def refresh(self) -> bool:
        """True if there are new keys, and they are in use."""
        if self._state() == self._seen:
            return False
        self.current = self._read()
        return True

    def _state(self) -> tuple[int, int, int]:
        try:
            state = self._path.stat()
        except OSError as error:
            raise KeySetUnusable(f"cannot read {self._path}: {error.strerror}") from error
        return state.st_ino, state.st_size, state.st_mtime_ns

    def _read(self) -> KeySet:
        seen = self._state()
        try:
            with self._path.open("rb") as opened:
                found = KeySet(opened.read(LARGEST_KEY_SET + 1))
        except (OSError, InvalidKeySet) as error:
            raise KeySetUnusable(f"the key set {self._path} cannot be used: {error}") from error
        self._seen = seen
        return found


def read_key_set(settings: Settings) -> KeySetFile | None:
    """None where no listener takes tokens."""
    path = settings.oauth.key_set_file
    takes = any(TOKEN_MECHANISM in place.mechanisms for place in settings.broker.listeners.values())
    if path is None or not takes:
        return None
    try:
        return KeySetFile(Path(path))
    except KeySetUnusable as error:
        raise KeySetUnusable(f"oauth.key_set_file: {error}") from error


async def refresh_files(files: Mapping[str, ServerCertificate | KeySetFile], runtime: Runtime) -> None:
    """Runs for ever. A file that cannot be used is logged each time, and what was read before stays."""
    while True:
        await runtime.sleep(REFRESH_SECONDS)
        for name, file in files.items():
            try:
                if await runtime.in_thread(file.refresh):
                    _log.info("a changed file is in use", what=name)
            except (CertificateUnusable, KeySetUnusable) as error:
                _log.error(
                    "a changed file is not used: what was read before stays", what=name, error=str(error)
                )


def sasl_sessions(
    settings: Settings, users: Credentials, runtime: Runtime, key_set: KeySetFile | None = None
) -> dict[str, Callable[[], SaslSession]]:
    """By the name of a listener that asks who its clients are: what makes the session of a new connection."""
    longest = settings.broker.longest_session
    longest_ms = 0 if longest is None else round(longest * 1000)
    rules = claim_rules(settings)

    def maker(listener: ListenerAddress) -> Callable[[], SaslSession]:
        mechanisms = _mechanisms(listener, users, runtime)
        if TOKEN_MECHANISM in listener.mechanisms and key_set is not None:
            mechanisms[TOKEN_MECHANISM] = lambda: OAuthBearerExchange(
                lambda: key_set.current, rules, runtime.wall_ms
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
    """None where every client may do everything."""
    security = settings.security
    if security.authorization == "none":
        return None
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
        self._key_set = read_key_set(settings)
        self._refreshing: KeptTask | None = None

    async def start(self) -> None:
        await self.users.start()
        warn_of_absent_super_users(self._settings, self.users)
        if self.authorization is not None:
            await self.authorization.acls.start()
        await self.quotas.start()
        files: dict[str, ServerCertificate | KeySetFile] = dict(self.certificates)
        if self._key_set is not None:
            files["oauth.key_set_file"] = self._key_set
        if files:
            self._refreshing = keep_running(
                self._runtime, "re-read certificates and keys", lambda: refresh_files(files, self._runtime)
            )

    def guarded(self, dispatcher: Dispatcher) -> Dispatcher | SaslGate:
        """The dispatcher, behind a gate if any listener asks clients who they are. Else without one: a gate
        costs each request a look-up."""
        sessions = sasl_sessions(self._settings, self.users, self._runtime, self._key_set)
        return SaslGate(dispatcher, sessions, self._runtime) if sessions else dispatcher

    def newcomer_wait(self, address: str) -> float:
        """For how many seconds a new connection of this address is held before it is closed; 0: it may come
        in."""
        if not self.quotas.table.keys:
            return 0.0
        return self.throttle.connect(address, round(self._runtime.monotonic() * 1000)) / 1000

    async def stop(self) -> None:
        if self._refreshing is not None:
            await self._refreshing.stop()
        if self.authorization is not None:
            await self.authorization.acls.stop()
        await self.quotas.stop()
        await self.users.stop()
