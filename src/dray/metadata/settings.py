"""The engine and the settings of each. An engine with servers is a folder, its name and a line here."""

from __future__ import annotations

from dataclasses import dataclass

from dray.base.config.kinds import Choice, Either, Size, Text
from dray.base.config.setting import section, setting
from dray.metadata.etcd import EtcdSettings
from dray.metadata.oxia import OxiaSettings
from dray.metadata.servers import ServersSettings

_PATH = Text(r"(?s:.+)", "a path")


@dataclass(frozen=True, kw_only=True)
class MetadataSettings:
    """The store of the order of records, of topics and of brokers."""

    engine: str = setting(
        "sqlite",
        Choice("sqlite", "oxia", "etcd", "memory"),
        "`sqlite` serves one machine, `oxia` and `etcd` any number; `memory` forgets everything "
        "when the process ends.",
    )
    path: str | None = setting(
        None, Either("auto", _PATH), "The SQLite file. `auto`: `metadata.sqlite` in the data directory."
    )
    ballast: int = setting(
        32 << 20,
        Size(0, 1 << 30),
        "With SQLite: a file `ballast` beside it takes so much of the disk, and is given up when "
        "that is full, so that topics and records can be deleted; nothing is appended until there is room "
        "again. 0: none. A disk that has not four times as much room when a broker starts gets none.",
    )
    oxia: OxiaSettings = section(OxiaSettings)
    etcd: EtcdSettings = section(EtcdSettings)

    @property
    def servers(self) -> ServersSettings | None:
        """None: the engine is in the process."""
        found: ServersSettings | None = getattr(self, self.engine, None)
        return found
