"""The metadata store on etcd: `store` is the engine. What is imported here costs nothing; gRPC does."""

from dray.metadata.etcd.settings import EtcdSettings, EtcdTls

__all__ = ["EtcdSettings", "EtcdTls"]
