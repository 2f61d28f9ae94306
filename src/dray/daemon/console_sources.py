"""How a console asks the clusters that topics come from: as the section `upstream` of its config says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from dray.client.cluster import Cluster, Place
from dray.client.errors import ClientError
from dray.client.records import LATEST, list_offsets
from dray.config import Settings
from dray.daemon.failures import Failure
from dray.daemon.upstream_clusters import UnknownUpstream, UpstreamClusters
from dray.inspection.brokers import CLIENT_ID
from dray.inspection.source_looks import SourceUnknown
from dray.runtime import Runtime


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
