"""The cluster: its identity, its brokers, and which of them should serve what."""

from dray.cluster.affinity import ALL_ZONES, Owners, by_affinity, owner_of, owners, way_out
from dray.cluster.broker import AdvertisedListener, Broker
from dray.cluster.bucket_owner import BucketGuard, BucketRefused, claim_bucket
from dray.cluster.clock_guard import ClockGuard, ProcessDescription
from dray.cluster.identity import ClusterInfo, open_cluster, uuid_text
from dray.cluster.membership import AUTOMATIC, BrokerIdTaken, Membership
from dray.cluster.zones import brokers_in, zone_of_client, zone_of_rack

__all__ = [
    "ALL_ZONES",
    "AUTOMATIC",
    "AdvertisedListener",
    "Broker",
    "BrokerIdTaken",
    "BucketGuard",
    "BucketRefused",
    "ClockGuard",
    "ClusterInfo",
    "Membership",
    "Owners",
    "ProcessDescription",
    "brokers_in",
    "by_affinity",
    "claim_bucket",
    "open_cluster",
    "owner_of",
    "owners",
    "uuid_text",
    "way_out",
    "zone_of_client",
    "zone_of_rack",
]
