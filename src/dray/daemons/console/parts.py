"""The parts of a console that its config names: who may come in, the clusters that topics come from, and the
tables.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dray.base.config.kinds import Address
from dray.base.runtime import Runtime
from dray.broker.security.oidc import OidcClient, OpenIdProvider, ask_provider
from dray.console.login import GateParts, LoginGate, PasswordGate
from dray.console.oidc_login import OidcGate
from dray.daemons.assembly.failures import USAGE, Failure
from dray.daemons.assembly.store_settings import table_names
from dray.daemons.compactor.catalogs import locations_of, make_tables, view_of_plain
from dray.daemons.config import Settings
from dray.daemons.migrator.upstream_clusters import UnknownUpstream, UpstreamClusters
from dray.inspection.brokers import CLIENT_ID, LARGEST_FRAME, Brokers, BrokerUnreachable
from dray.inspection.sql.queries import SqlQueries
from dray.inspection.sql.tail import TailReader
from dray.inspection.storage.stored import StoredCluster
from dray.inspection.storage.tables import ClusterTables, TopicTails
from dray.inspection.topics.links import SourceUnknown
from dray.kafka.client import AuthenticationFailed
from dray.kafka.client.cluster import Cluster, Place
from dray.kafka.client.errors import ClientError
from dray.kafka.client.properties import ClientSecurity
from dray.kafka.client.records import LATEST, list_offsets
from dray.kafka.client.tokens import HeldToken, TokenCredential
from dray.kafka.sasl.client import PLAIN, ClientCredential
from dray.tables.contract import TableSnapshot, TablesUnavailable
from dray.tables.iceberg.settings import SettingsRefused
from dray.tables.iceberg.view import NotPlain

if TYPE_CHECKING:
    from dray.tables.iceberg.tables import IcebergTables
    from dray.tables.iceberg.view import TableView


# --- who may come in


_LONGEST_SECRET: Final = 4096


def make_entrance(
    settings: Settings,
    bootstrap: Sequence[tuple[str, int]],
    security: ClientSecurity,
    runtime: Runtime,
) -> Callable[[GateParts], LoginGate]:
    """Connections are as `security` says, but for who connects. Raises `Failure`."""
    console = settings.console

    async def connected(credential: ClientCredential | TokenCredential) -> Brokers:
        theirs = replace(security, credential=credential)
        dial = theirs.dialer(CLIENT_ID, runtime, LARGEST_FRAME)
        brokers = Brokers(bootstrap, runtime, dial=dial)
        try:
            await brokers.first()
        except BrokerUnreachable as error:
            await brokers.close()
            if isinstance(error.__cause__, AuthenticationFailed):
                raise error.__cause__ from None
            raise
        return brokers

    async def by_password(user: str, password: str) -> Brokers:
        return await connected(ClientCredential(console.mechanism, user, password))

    async def by_token(held: HeldToken) -> Brokers:
        return await connected(TokenCredential(held))

    in_clear = security.tls is None and not all(Address(*each).is_loopback for each in bootstrap)
    if console.auth == "oidc":
        if in_clear:
            raise Failure(
                "console.auth = oidc: tokens would go to the brokers in clear; use a --command-config with "
                "SASL_SSL or SSL",
                USAGE,
            )
        provider = _provider(settings, runtime)
        return lambda parts: OidcGate(provider, by_token, parts)
    if console.mechanism == PLAIN and in_clear:
        raise Failure(
            "console.mechanism = PLAIN: passwords would go to the brokers in clear; use a SCRAM mechanism, "
            "or a --command-config with SASL_SSL",
            USAGE,
        )
    return lambda parts: PasswordGate(by_password, parts)


def _provider(settings: Settings, runtime: Runtime) -> OpenIdProvider:
    console = settings.console
    assert console.oidc_issuer is not None
    assert console.oidc_client_id is not None
    client = OidcClient(
        console.oidc_issuer,
        console.oidc_client_id,
        _secret(console.oidc_client_secret_file),
        console.oidc_scopes,
        settings.oauth.subject_claim,
    )
    try:
        context = ssl.create_default_context(cafile=console.oidc_ca_file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it holds no certificates in PEM"
        raise Failure(f"console.oidc_ca_file = {console.oidc_ca_file}: {reason}", USAGE) from error
    return OpenIdProvider(client, ask_provider(context), runtime)


def _secret(file: str | None) -> str | None:
    if file is None:
        return None
    where = f"console.oidc_client_secret_file = {file}"
    try:
        with Path(file).open("rb") as opened:
            text = opened.read(_LONGEST_SECRET + 1).decode().strip()
    except OSError as error:
        raise Failure(f"{where}: {error.strerror or error}", USAGE) from error
    except UnicodeDecodeError:
        raise Failure(f"{where}: holds no text", USAGE) from None
    if not 0 < len(text) <= _LONGEST_SECRET:
        raise Failure(f"{where}: holds no secret, or more than {_LONGEST_SECRET} letters", USAGE)
    return text


# --- the clusters that topics come from, as the section `upstream` of the config says


class ConsoleSources:
    """One connection to each broker of a source, opened when a page needs it. A source that cannot be used is
    said on the pages; it keeps no console from starting."""

    def __init__(self, settings: Settings, runtime: Runtime) -> None:
        self._clusters: UpstreamClusters | None = None
        self._refused = ""
        try:
            self._clusters = UpstreamClusters(settings, runtime)
        except Failure as error:
            self._refused = str(error)
        self._open: dict[str, Cluster] = {}

    async def ends(self, upstream: str, topics: Sequence[str]) -> Mapping[Place, int]:
        """The last stable offsets: as far as a mirror can be."""
        cluster = self._cluster(upstream)
        try:
            await cluster.learn(topics)
            places = [(topic, partition) for topic in topics for partition in cluster.view.partitions(topic)]
            found = await list_offsets(cluster, places, LATEST, committed=True)
        except ClientError:
            with suppress(ClientError):
                await cluster.close()
            raise
        return {place: answer.offset for place, answer in found.items() if not answer.error_code}

    def _cluster(self, upstream: str) -> Cluster:
        if self._clusters is None:
            raise SourceUnknown(self._refused)
        if upstream not in self._open:
            try:
                self._open[upstream] = self._clusters.open(upstream, CLIENT_ID)
            except (UnknownUpstream, Failure) as error:
                raise SourceUnknown(str(error)) from error
        return self._open[upstream]

    async def close(self) -> None:
        opened, self._open = list(self._open.values()), {}
        for cluster in opened:
            with suppress(ClientError):
                await cluster.close()


# --- the tables
# Their libraries are loaded, and the catalog is opened, when a page first asks: a console that shows none
# starts without them.


class TablesWhenAsked:
    """`IcebergTables`, made when it is first asked."""

    def __init__(self, settings: Settings, cluster_id: str, runtime: Runtime) -> None:
        self._settings = settings
        self._cluster_id = cluster_id
        self._runtime = runtime
        self._opened: IcebergTables | None = None
        self._opening = asyncio.Lock()

    async def view(self, topic: str) -> TableView | None:
        return await (await self._tables()).view(topic)

    async def rows_view(self, topic: str) -> TableView | None:
        with suppress(NotPlain, SettingsRefused):
            return await view_of_plain(self._settings, self._cluster_id, topic, self._runtime)
        return await self.view(topic)

    async def snapshots(self, topic: str) -> list[TableSnapshot] | None:
        return await (await self._tables()).snapshots(topic)

    async def ends_of(self, topic: str, snapshot_id: int) -> Mapping[int, int] | None:
        return await (await self._tables()).ends_of(topic, snapshot_id)

    async def close(self) -> None:
        if self._opened is not None:
            await self._opened.close()

    async def _tables(self) -> IcebergTables:
        async with self._opening:
            if self._opened is None:
                # In a thread: pages that need no table are served meanwhile.
                try:
                    self._opened = await self._runtime.in_thread(
                        make_tables, self._settings, self._cluster_id, self._runtime
                    )
                except Failure as error:
                    raise TablesUnavailable(str(error)) from error
            return self._opened


def tables_for_console(
    settings: Settings,
    stored: StoredCluster,
    source: TablesWhenAsked,
    runtime: Runtime,
    tails: TailReader | None = None,
) -> ClusterTables | None:
    """None where the cluster has no tables, or this machine has not the packages to read them."""
    if not settings.iceberg.enabled or importlib.util.find_spec("pyiceberg") is None:
        return None
    try:
        locations = locations_of(settings)
    except SettingsRefused:
        return None
    names = table_names(settings)

    async def why_not(topic: str) -> str | None:
        known = await stored.topic(topic)
        return None if known is None else names.why_not(known, settings.topics.defaults)

    # A query on local files needs nothing of ours; one on a cloud finds its credentials as we do.
    environment = {} if locations.is_local else dict(os.environ)
    behind = None if tails is None else TopicTails(stored, tails, why_not)
    return ClusterTables(source, locations, SqlQueries(runtime, environment), why_not, behind)
