"""The engine of clusters: metadata in an Oxia namespace. See `store`."""

from dray.metadata.oxia.errors import UnusableOxia
from dray.metadata.oxia.settings import OxiaSettings, OxiaTls
from dray.metadata.oxia.store import OxiaStore

__all__ = ["OxiaSettings", "OxiaStore", "OxiaTls", "UnusableOxia"]
