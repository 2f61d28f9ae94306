"""The metadata store on Oxia: `store` is the engine. What is imported here costs nothing; gRPC does."""

from dray.metadata.oxia.settings import OxiaSettings, OxiaTls

__all__ = ["OxiaSettings", "OxiaTls"]
