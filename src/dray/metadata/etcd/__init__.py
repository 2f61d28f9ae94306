"""The metadata store on etcd: `store` is the engine. The imports here cost nothing; gRPC does."""

from dray.metadata.etcd.settings import EtcdSettings

__all__ = ["EtcdSettings"]
