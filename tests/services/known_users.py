"""Users that a test knows of, without a store."""

from __future__ import annotations

from collections.abc import Mapping

from dray.kafka.sasl.credentials import ScramCredential, ScramMechanism


class KnownUsers:
    """By name; credentials of one user in the order in which they were set."""

    def __init__(
        self, credentials: Mapping[str, Mapping[ScramMechanism, ScramCredential]] | None = None
    ) -> None:
        self._credentials = credentials or {}

    def of(self, user: str) -> Mapping[ScramMechanism, ScramCredential]:
        return self._credentials.get(user, {})

    def set_last(self, user: str) -> ScramMechanism | None:
        return list(self.of(user))[-1] if self.of(user) else None
