"""The metadata store on Oxia: `store` is the engine. The imports here cost nothing; gRPC does."""

from dray.metadata.oxia.settings import OxiaSettings

__all__ = ["OxiaSettings"]
