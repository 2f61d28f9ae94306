"""etcd as an engine: its settings, and what small appends may cost it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dray.base.config.kinds import KIB, MIB, Either, Secret, SecretMap, Text, TextList
from dray.base.config.setting import setting
from dray.base.runtime import Runtime
from dray.metadata.contract import InlineLimits, MetadataStore
from dray.metadata.servers import HOST_PORT, ServersSettings, revealed

INLINE: Final = InlineLimits(
    chunk_bytes=8 * KIB,
    write_bytes=8 * KIB,
    rate=32 * KIB,
    backlog=4 * MIB,
    stream_backlog=256 * KIB,
    pace_seconds=0.01,
    pack_bytes=2 * MIB,
)
"""It keeps every revision until it is compacted, and its quota is 2 GB by default."""

_PREFIX = Text(r"[!-~]{1,64}", "1 to 64 characters of ASCII without spaces, such as dray/production/")
_USER = Text(r"\S+", "a user name")


@dataclass(frozen=True, kw_only=True)
class EtcdSettings(ServersSettings):
    """An etcd cluster, 3.4.31, 3.5.13 or newer."""

    endpoints: Sequence[str] = setting(
        ("127.0.0.1:2379",),
        TextList(HOST_PORT, "HOST:PORT, or several with commas between them", least=1),
        "The servers. One that fails is left for the next.",
    )
    prefix: str = setting(
        "dray/", _PREFIX, "What the keys of this Dray cluster begin with, and those of no other."
    )
    user: str | None = setting(
        None, Either("none", _USER), "Who to log in as, with the password in `secrets`."
    )
    secrets: Mapping[str, Secret] = setting(
        {},
        SecretMap("`password` or `token` with a text value, such as {password: ...}", r"password|token"),
        "`password` of the user, or a `token` that is sent as it is. Better from the "
        "environment: `DRAY_METADATA__ETCD__SECRETS__PASSWORD=...`.",
    )
    # What the servers take by default, and have to take
    max_txn_ops: int = 128
    max_request_bytes: int = 1536 * KIB
    connect_timeout: float = 2.0
    serializable_reads: bool = False
    """Reads from what the asked server knows, without asking the others: cheaper, and perhaps old until a
    barrier was waited for."""

    @property
    def password(self) -> str | None:
        return revealed(self.secrets, "password")

    @property
    def token(self) -> str | None:
        """Sent with every request as it is, instead of one got for a user and a password."""
        return revealed(self.secrets, "token")

    async def opened(self, runtime: Runtime) -> MetadataStore:
        from dray.metadata.etcd.store import EtcdStore

        store = EtcdStore(self, runtime)
        await store.open()
        return store
