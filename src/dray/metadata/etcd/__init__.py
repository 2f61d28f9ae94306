"""The metadata store on etcd."""

from dray.metadata.etcd.errors import UnusableEtcd
from dray.metadata.etcd.settings import EtcdSettings, EtcdTls
from dray.metadata.etcd.store import EtcdStore

__all__ = ["EtcdSettings", "EtcdStore", "EtcdTls", "UnusableEtcd"]
