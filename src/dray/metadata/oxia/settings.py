"""Oxia as an engine: its settings, and what small appends may cost it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dray.base.config.kinds import KIB, MIB, Secret, SecretMap, Text, TextList
from dray.base.config.setting import setting
from dray.base.runtime import Runtime
from dray.metadata.contract import InlineLimits, MetadataStore
from dray.metadata.servers import HOST_PORT, ServersSettings, revealed

INLINE: Final = InlineLimits(
    write_bytes=32 * KIB, rate=256 * KIB, backlog=16 * MIB, stream_backlog=MIB, pace_seconds=0.01
)

_NAMESPACE = Text(r"[^\s/]+", "a namespace without `/`, such as dray-production")


@dataclass(frozen=True, kw_only=True)
class OxiaSettings(ServersSettings):
    """An Oxia namespace. Its notifications have to be enabled."""

    addresses: Sequence[str] = setting(
        ("127.0.0.1:6648",),
        TextList(HOST_PORT, "HOST:PORT, or several with commas between them", least=1),
        "Servers of the Oxia cluster to begin with; the others are learnt from them.",
    )
    namespace: str = setting("default", _NAMESPACE, "The namespace of this Dray cluster, and of no other.")
    secrets: Mapping[str, Secret] = setting(
        {},
        SecretMap("`token` with a text value, such as {token: ...}", r"token"),
        "`token` is sent with every request. Better from the environment: "
        "`DRAY_METADATA__OXIA__SECRETS__TOKEN=...`.",
    )

    first_answer: float = 2.0
    """Seconds for a server to begin to answer, before another one is asked."""

    @property
    def token(self) -> str | None:
        """Sent as a bearer token with every request."""
        return revealed(self.secrets, "token")

    async def opened(self, runtime: Runtime) -> MetadataStore:
        from dray.metadata.oxia.store import OxiaStore

        store = OxiaStore(self, runtime)
        await store.open()
        return store
