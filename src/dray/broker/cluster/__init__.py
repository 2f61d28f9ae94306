"""The cluster: its identity, its brokers, and which of them should serve what."""

from dray.broker.cluster.affinity import (
    ALL_ZONES,
    Owners,
    brokers_in,
    by_affinity,
    owner_of,
    owners,
    way_out,
    zone_of_address,
    zone_of_client,
    zone_of_rack,
)
from dray.broker.cluster.bucket_owner import BucketGuard, BucketRefused, claim_bucket
from dray.broker.cluster.clock_guard import ClockGuard, ProcessDescription
from dray.broker.cluster.identity import ClusterInfo, has_cluster, open_cluster, uuid_text
from dray.broker.cluster.level_keeper import LevelKeeper
from dray.broker.cluster.levels import LevelTooNew
from dray.broker.cluster.membership import AUTOMATIC, AdvertisedListener, Broker, BrokerIdTaken, Membership
from dray.broker.cluster.tally_keeper import TallyKeeper, may_be_written_while_held

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
    "LevelKeeper",
    "LevelTooNew",
    "Membership",
    "Owners",
    "ProcessDescription",
    "TallyKeeper",
    "brokers_in",
    "by_affinity",
    "claim_bucket",
    "has_cluster",
    "may_be_written_while_held",
    "open_cluster",
    "owner_of",
    "owners",
    "uuid_text",
    "way_out",
    "zone_of_address",
    "zone_of_client",
    "zone_of_rack",
]
